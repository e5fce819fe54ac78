"""For operators: health page, status, checks, announcing objects, several processes."""
