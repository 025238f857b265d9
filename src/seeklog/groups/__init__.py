"""Consumer groups: their offsets and members, in the records that Kafka keeps in `__consumer_offsets`."""
