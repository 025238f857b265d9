"""A store handed to a Kafka broker, in place or into a cluster's directory, and taken back from one."""
