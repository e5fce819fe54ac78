"""Answers for people: one by its id, all as they come, those that a dry run would publish."""
