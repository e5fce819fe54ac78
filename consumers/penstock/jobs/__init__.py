"""A job is a backlog that is announced on the input topic and worked off to its end. Here are its
announcing, its end, and its progress.
"""
