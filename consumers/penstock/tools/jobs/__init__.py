"""A job is a backlog that is announced on the input topic and worked off to its end."""
