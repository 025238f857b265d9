"""The coordinators: they keep the state of groups in memory, and its records in Kafka's internal topics."""
