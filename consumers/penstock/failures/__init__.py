"""Failures that any stage may meet: services that are away, exceptions that nobody foresaw."""
