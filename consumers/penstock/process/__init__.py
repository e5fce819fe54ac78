"""Our own processes: starting children, ending with the parent, the heap, exiting."""
