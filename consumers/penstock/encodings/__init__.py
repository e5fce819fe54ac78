"""Answers to bytes of a result object: one file a format, found by `registry`."""
