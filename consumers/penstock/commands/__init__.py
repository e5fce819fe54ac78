"""One command a file: parse, call one function, print. The work itself is in other packages, which
are imported only when the command runs.
"""
