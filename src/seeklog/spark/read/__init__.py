"""Reading with Spark: options, plans and tasks of batches and streams."""
