"""The real services on this machine, for tests and benchmarks: Apache Kafka, MinIO and TorchServe.

Rule: `stack` decides. One module for each service knows how to build and start it, and how to ask
whether it is ready; `compose` does the same through Docker. Only `scripts/stack` is meant to be
called from outside.
"""
