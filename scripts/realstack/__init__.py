"""The real services on this machine, for tests and benchmarks: Apache Kafka, MinIO and TorchServe.

Rule: `stack` decides what is started and stopped. For each service one module knows how to build
and start the service, and how to ask whether it is ready. `compose` does this through Docker for
all services. `what_runs` knows all services and where clients find them. People call
`scripts/stack`.
"""
