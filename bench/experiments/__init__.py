"""Experiments that decisions are based on, kept so that they can be repeated by hand."""
