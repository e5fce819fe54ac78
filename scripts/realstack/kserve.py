"""KServe's Python model server; it speaks KServe's first protocol, too."""

from realstack.model_server import ModelServer


class KServe(ModelServer):
    name = "kserve"
    ports = ("kserve", "kserve_grpc")
