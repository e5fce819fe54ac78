"""The commands: each parses its options, calls one function of another package, which is imported
only when the command runs, and prints.
"""
