"""`penstock run`: opens a worker from its configuration, and runs it until a signal."""
