"""The live page: what it is made of, its one stream of updates, and what people may do on it."""
