"""Which input is read: topics by either client, several regions, a bounded span, URLs."""
