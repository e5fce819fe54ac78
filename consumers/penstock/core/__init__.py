"""Decisions. Nothing here waits, looks at a clock, or knows a client library: time is an argument,
and what is to be done is the answer. So it can be tested exhaustively, and fast.
"""
