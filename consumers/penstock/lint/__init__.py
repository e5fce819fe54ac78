"""`penstock lint`: what is wrong in a configuration, all of it, without asking any service."""
