"""Data pipelines on Spark over a seeklog store: examples to run and to copy, beside the package, not in it."""
