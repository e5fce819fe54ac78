"""`penstock lint`: everything that is wrong in a configuration, without any service."""
