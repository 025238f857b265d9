"""What takes records away: retention, deletion, compaction."""
