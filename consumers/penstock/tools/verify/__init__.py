"""Judges, from the topics alone, whether every reference was answered, whether the answers are in
order, and how often each came.
"""
