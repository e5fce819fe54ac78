"""Reads rows from bytes, in bounded memory. `registry` opens the reader of an object; a new format
gets an entry in `built_in`.
"""
