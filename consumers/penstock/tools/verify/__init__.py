"""Judges from the topics alone whether every reference was answered, in order, and how often."""
