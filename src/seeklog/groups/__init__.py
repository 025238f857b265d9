"""Consumer groups: committed offsets and members, stored as Kafka's records in `__consumer_offsets`."""
