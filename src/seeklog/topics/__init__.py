"""A directory of topics: which there are, their partitions on disk, and the logs that stand open."""
