"""Kafka in memory: one group with members that die, sources, sinks, transactions."""
