"""Two regions on real services with a delay between them; `scripts/regions` starts the run."""
