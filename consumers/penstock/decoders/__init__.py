"""Processes that decode strangers' objects and hold nothing: no partition, no credential, and only
one socket. So they may crash. See `pool`.
"""
