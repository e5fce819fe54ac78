"""The row that the model is known to take, as a request would carry it.

Rule: what the configuration calls a row and the model could never take is a wrong setting, told at
the start.
"""

import numpy as np
import orjson

from consumers import config
from consumers.core.payload import JsonRows, Matrix, Payload
from consumers.errors import EXIT_USAGE, Fatal


def canary_of(settings: config.Model) -> Payload | None:
    """The row of `model.canary` in the form that is sent."""
    if settings.canary is None:
        return None
    try:
        row = orjson.loads(settings.canary)
        if settings.request != "float32":
            return JsonRows.of([orjson.dumps(row)])
        with np.errstate(over="ignore"):
            values = np.array([row], "<f4")
        if values.ndim == 2 and values.size and np.isfinite(values).all():
            return Matrix(values)
    except (ValueError, TypeError):
        pass
    wanted = "numbers, as [1.5, 2, 3]" if settings.request == "float32" else "JSON"
    raise Fatal(
        f"model.canary = {settings.canary!r}: write a row of {wanted}", exit_code=EXIT_USAGE
    )
