"""Bytes to rows: push parsers in bounded memory. In `registry.py` a new format is one line."""
