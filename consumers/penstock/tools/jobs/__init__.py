"""A job is a backlog that is announced on the input topic and worked off to its end. This folder
announces jobs, decides where they end, and tells how far they are.
"""
