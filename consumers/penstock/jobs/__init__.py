"""A job is a topic: announcing a backlog, working it off to its end, and how far that is."""
