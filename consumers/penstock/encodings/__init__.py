"""Answers to the bytes of a result object, one file for each format; and to Arrow blocks."""
