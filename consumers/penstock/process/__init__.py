"""Our own processes: starting children, the clock, memory, signals, and the end."""
