"""Removing records: retention, deletion, compaction."""
