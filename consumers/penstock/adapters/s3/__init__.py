"""S3: our own signed GET, and s3fs behind it."""
