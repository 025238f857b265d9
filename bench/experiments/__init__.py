"""Experiments behind decisions: run by hand, kept so that their figures can be taken again."""
