"""Processes that decode objects of strangers and have nothing to lose: no partition, no credential,
no socket but one. See `pool`.
"""
