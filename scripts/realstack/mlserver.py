"""MLServer, Seldon's model server."""

from realstack.model_server import ModelServer


class MLServer(ModelServer):
    name = "mlserver"
    ports = ("mlserver", "mlserver_grpc", "mlserver_metrics")
