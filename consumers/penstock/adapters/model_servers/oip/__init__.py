"""The Open Inference Protocol, over REST and gRPC: Triton, KServe, MLServer."""
