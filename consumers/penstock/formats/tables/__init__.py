"""Arrow, Avro, npy and Parquet."""
