"""Exactly once: the transactions of a group's members, and the aborting of transactions that a
member left open.
"""
