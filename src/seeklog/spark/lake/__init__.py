"""A lake: the sealed segments of a store as Parquet files, and the manifest that says which of them count."""
