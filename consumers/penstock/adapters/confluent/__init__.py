"""The source that reads the input topics by the client confluent-kafka (librdkafka)."""
