"""What a person uses beside the worker: to try it, judge it, measure it, and mend what went wrong.

Rule: a tool may use every part of the worker; no part of the worker imports a tool.
"""
