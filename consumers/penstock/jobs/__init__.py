"""Jobs: a backlog is announced on the input topic and worked off to its end, with its progress
shown.
"""
