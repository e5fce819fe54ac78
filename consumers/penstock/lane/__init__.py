"""One assignment of one partition: what it owes, what may leave, and the bytes that may be held."""
