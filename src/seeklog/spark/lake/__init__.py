"""A lake: sealed segments of a store as Parquet files, and the manifest that lists the files."""
