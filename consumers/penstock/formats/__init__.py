"""Reads rows from bytes, in bounded memory. The module `registry` opens the reader of an object. A
new format gets an entry in the module `built_in`.
"""
