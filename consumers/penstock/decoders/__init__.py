"""Processes that decode objects. They hold no partition, no credential, and only one socket, so
that a crash of one does no harm. See `pool`.
"""
