"""What a decoder raises although nobody foresaw it: the object is bad, and the worker goes on.

Rule: the two outermost decoders, `PushDecoder` and `RangedDecoder`, pass everything that is raised
below them through here. The libraries that decode raise more kinds of errors than their pages say,
and an error that ends a worker would end the next one too, which meets the same object. It is a
fault of ours all the same: it is logged with its trace, and tests tell it from a reason.
"""

import logging

from consumers.errors import PenstockError, Poison

log = logging.getLogger(__name__)

_SHOWN_CHARS = 200


class Unforeseen(Poison):
    """The decoder did not say what is wrong with the object: it fell over it."""


def foreseen(error: Exception) -> PenstockError:
    """The error itself if it was raised on purpose, else what the object is answered with."""
    if isinstance(error, PenstockError):
        return error
    log.error("a decoder fell over an object, which is bad_format for it", exc_info=error)
    said = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS].partition("\n")[0]
    found = Unforeseen(
        "bad_format",
        f"the object cannot be read ({said}); the worker's log has the trace, which is a fault to "
        "report",
    )
    found.__cause__ = error
    return found
