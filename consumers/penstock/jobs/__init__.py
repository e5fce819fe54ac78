"""A job is a topic: a backlog is announced on it, and worked off to its end; and how far
that is.
"""
