"""A Spark session on this machine, and the Java it runs on."""
