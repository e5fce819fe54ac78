"""One assignment of one partition: what it owes, what may leave, and the bytes that it holds."""
