"""The metadata of a KRaft cluster, as a broker's data directory holds it: topics, partitions and settings."""
