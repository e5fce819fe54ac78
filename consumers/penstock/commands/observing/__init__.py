"""Commands that show answers: as they come, one by its id."""
