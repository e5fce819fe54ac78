"""S3: our own signed GET for small objects, obstore for all others, s3fs where neither fits."""
