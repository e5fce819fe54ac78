"""Encodes answers: as the bytes of a result object, in lines or in columns, or as Arrow blocks."""
