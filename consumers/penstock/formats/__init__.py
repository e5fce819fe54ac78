"""Bytes to rows, in bounded memory. `registry` opens the reader of an object; a new format is an
entry in `built_in`.
"""
