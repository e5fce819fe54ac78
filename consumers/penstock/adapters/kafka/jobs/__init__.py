"""What Kafka keeps of a job beside its references: how far their listing has come."""
