"""Answers to the bytes of a result object, in lines or in columns; and to Arrow blocks."""
