"""Sealed segments elsewhere: copied, listed in a manifest, read there."""
