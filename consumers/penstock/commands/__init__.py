"""The commands, in files that are named for them: each command parses its options, calls one
function and prints. That function is in another package, which is imported only when the command
runs.
"""
