"""One command a file: parse, call one function, print. What a command does lives elsewhere, and
is loaded only when it is asked for.
"""
