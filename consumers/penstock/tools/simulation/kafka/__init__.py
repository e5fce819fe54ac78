"""Kafka in memory: a topic, a group whose members die, sources, sinks, transactions."""
