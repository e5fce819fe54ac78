"""A model is asked for the answers to rows."""
