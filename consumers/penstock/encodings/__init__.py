"""Encodes answers: as the bytes of a result object, in lines or columns, or as Arrow blocks."""
