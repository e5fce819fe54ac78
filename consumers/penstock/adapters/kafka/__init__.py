"""Kafka by aiokafka."""
