"""What a fleet costs, measured on the running stack; `scripts/fleet` starts it."""
