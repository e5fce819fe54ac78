"""Membership in a consumer group: joining, leaving, refusals, lag; both Kafka clients use this."""
