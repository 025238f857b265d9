"""Producers and consumers of a store."""
