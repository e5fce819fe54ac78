"""The input topic by confluent-kafka (librdkafka)."""
