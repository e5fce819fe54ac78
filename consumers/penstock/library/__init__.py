"""`predict` for Python programs: the worker's pipeline without Kafka, and the results as tables."""
