"""Handing a store over to a Kafka broker, in place or into a cluster's directory, and taking it back."""
