"""The commands. Each file is named for the commands in it. A command parses its options, calls one
function, and prints the result. That function is in another package, which is imported only when
the command runs.
"""
