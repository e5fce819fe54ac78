"""Commands that only look: at answers, at a running worker, at how far a group is."""
