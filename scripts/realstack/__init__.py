"""The real services on this machine, for tests and benchmarks: Apache Kafka, MinIO and TorchServe.

Rule: `stack` decides, one module per service knows how that service is built, started and asked
whether it is ready, and `compose` does the same through Docker. Only what `scripts/stack` calls is
meant for others.
"""
