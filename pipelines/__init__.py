"""Spark pipelines over a seeklog store: examples to run and to copy. They are not part of the package."""
