"""Which adapter speaks `model.protocol`.

Rule: an adapter and its library are loaded when its protocol is asked for, and not before. Owner:
the application and the library call.
"""

from consumers import config
from consumers.adapters.model_oip import OipModel
from consumers.adapters.model_torchserve import TorchServeModel
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Model


def open_model(cfg: config.Config) -> Model:
    """Raises `Fatal` for a form of the rows that the protocol does not have."""
    settings = cfg.model
    if settings.protocol == "torchserve":
        return TorchServeModel(settings)
    if settings.request not in ("json", "float32"):
        raise Fatal(
            f"model.request = {settings.request!r} does not go with model.protocol = "
            f"{settings.protocol!r}, which needs only to know what a row is: use float32 for rows "
            "of numbers, json for all others",
            exit_code=EXIT_USAGE,
        )
    return OipModel(settings, len(cfg.rows.columns) if cfg.rows.columns else None)
