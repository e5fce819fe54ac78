"""S3: our own signed GET reads small objects, obstore most others, and s3fs the rest."""
