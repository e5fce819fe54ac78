"""Membership in a consumer group: joining, leaving, refusals, and lag, for both Kafka clients."""
