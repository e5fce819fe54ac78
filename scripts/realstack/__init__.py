"""The real services on this machine, for tests and benchmarks: Apache Kafka, MinIO and TorchServe.

Rule: `stack` decides what is started and stopped. Each service is a class that knows how to build
and start the service, and how to ask whether it is ready; services of one kind share a module.
`compose` starts the usual services through Docker instead. `what_runs` knows all services and where
clients find them. People call `scripts/stack`.
"""
