"""LitServe: a plain JSON server, an array of rows in and an array of answers out."""

from realstack.model_server import ModelServer
from realstack.torchserve import FEATURES


class LitServe(ModelServer):
    name = "litserve"
    ports = ("litserve",)
    path = "/{model}"

    def body(self) -> object:
        return [[0.5] * FEATURES]
