"""Adapters in memory that a test or a simulation owns."""
