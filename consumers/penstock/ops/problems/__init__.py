"""Says what is wrong with a worker, and what a person can do about it."""
