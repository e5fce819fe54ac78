"""Bytes to rows: push parsers in bounded memory. `registry.py` is where a new format is one line."""
