"""Who we are to the brokers: one value for every client of Kafka, and its tokens."""
