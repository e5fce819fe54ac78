"""`penstock run`: picks the adapters, checks the topics, turns signals into a drain."""
