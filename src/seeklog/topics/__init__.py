"""A directory of topics: its catalog, the partitions on disk, and the open logs."""
