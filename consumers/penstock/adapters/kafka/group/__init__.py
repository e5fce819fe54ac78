"""Membership in a consumer group: joining, leaving, refusals, and lag. Both Kafka clients use this
folder.
"""
