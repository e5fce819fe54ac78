"""The adapters of Kafka that use the client aiokafka."""
