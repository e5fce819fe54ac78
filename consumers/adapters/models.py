"""Which adapter speaks `model.protocol`.

Rule: an adapter and its library are loaded when its protocol is asked for, and not before. Owner:
the application and the library call.
"""

from consumers import config
from consumers.adapters.model_alone import AloneModel
from consumers.adapters.model_envelope import EnvelopeModel
from consumers.adapters.model_oip import OipModel
from consumers.adapters.model_torchserve import TorchServeModel
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Model

# Numbers, JSON, opaque bytes, typed columns.
OIP_REQUESTS = ("float32", "json", "bytes", "arrow")


def open_model(cfg: config.Config) -> Model:
    """Raises `Fatal` for a form of the rows that the protocol does not have."""
    settings = cfg.model
    if settings.protocol == "torchserve":
        return TorchServeModel(settings)
    if settings.protocol == "http":
        return AloneModel(EnvelopeModel(settings))
    if settings.request not in OIP_REQUESTS:
        raise Fatal(
            f"model.request = {settings.request!r} does not go with model.protocol = "
            f"{settings.protocol!r}, which needs only to know what a row is; choose one of "
            f"{', '.join(OIP_REQUESTS)}",
            exit_code=EXIT_USAGE,
        )
    return AloneModel(OipModel(settings, len(cfg.rows.columns) if cfg.rows.columns else None))
