"""The live page for people: its parts, the stream of its updates, and the actions on it."""
