"""`predict` for Python programs: the worker's pipeline without Kafka; results as tables."""
