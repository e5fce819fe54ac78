"""What is wrong with a worker, in words, and what mends it."""
