"""Bytes to rows: push parsers in bounded memory. In `ours.py` a new format is one entry."""
