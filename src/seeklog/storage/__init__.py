"""One partition on disk: index, segment, scan, recovery, log, retention, checkpoint."""
