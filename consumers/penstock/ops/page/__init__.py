"""The live page for people: its parts, its updates, and the actions on it."""
