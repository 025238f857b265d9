"""A local Spark session and its Java."""
