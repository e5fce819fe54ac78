"""Two regions on real services, a slow line between them; `scripts/regions` starts it."""
