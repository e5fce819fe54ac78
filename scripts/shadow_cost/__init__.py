"""What a slow shadow costs live work; `scripts/shadow-cost` starts the measurement."""
