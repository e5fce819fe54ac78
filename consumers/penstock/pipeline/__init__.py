"""The life of a worker's pipeline: start, rebalance, drain, stop; and how its stages are joined."""
