"""Bytes to rows: push parsers in bounded memory. In `built_in.py` a new format is one entry."""
