"""The commands, one a file: parse, call one function, print. The work is done in other packages,
which are imported only when the command runs.
"""
