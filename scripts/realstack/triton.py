"""Triton, with its models in Python by NVIDIA's pytriton."""

from realstack.model_server import ModelServer


class Triton(ModelServer):
    name = "triton"
    ports = ("triton", "triton_grpc", "triton_metrics")
