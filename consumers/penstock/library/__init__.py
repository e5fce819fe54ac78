"""`predict` for Python programs: runs the worker's pipeline without Kafka, and gives the results as
tables.
"""
