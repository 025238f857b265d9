"""Bytes to records and back. Pure: no files, no clock, no threads."""
