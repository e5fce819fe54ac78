"""`predict` for Python programs: the same pipeline without Kafka; and its results as tables."""
