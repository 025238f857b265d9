"""A commit log in Kafka's own file format, inside your Python process."""
