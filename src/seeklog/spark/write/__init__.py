"""Writing from Spark: tasks stage rows, the driver commits them."""
