"""Our own processes: starting children, ending with the parent, clock, heap, signals, exit."""
