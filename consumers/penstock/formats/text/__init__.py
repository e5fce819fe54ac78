"""CSV, JSON, NDJSON, lines of text, and bytes as they are."""
