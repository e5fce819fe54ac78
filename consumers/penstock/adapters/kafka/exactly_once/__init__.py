"""Exactly once: transactions as a member of the group, and its positions when they are over."""
