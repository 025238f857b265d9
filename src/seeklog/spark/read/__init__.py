"""Reading from Spark: the options, plans, and tasks of batches and streams."""
