"""The sources of a worker, one for each kind of input: topics by either Kafka client, topics of
several regions, a bounded span of topics, or URLs.
"""
