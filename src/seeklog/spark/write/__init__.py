"""Writing with Spark: rows staged by tasks, committed by the driver."""
