"""Processes that decode objects. They hold no partition, no credential, and only one socket, so
that they may crash. See `pool`.
"""
