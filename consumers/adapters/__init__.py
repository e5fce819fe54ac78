"""The only code that knows a client library, one port a file. Every error of a library leaves as
one of `consumers.errors`; every adapter of a port passes the one contract suite of that port.
"""
