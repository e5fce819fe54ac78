"""Turns an unforeseen exception of a decoder into the reason why its object is bad.

Rule: all exceptions of decoding pass here, so that they can be reported to the worker, which
answers, logs and counts them (`calls/unexpected_errors.py`). If memory runs out, the object is the
cause: one of 900 bytes asked for 8 GB.
"""

from penstock.errors import PenstockError, Unforeseen


def foreseen(error: Exception) -> PenstockError:
    """The error itself if it was raised on purpose, else the error for its object."""
    return error if isinstance(error, PenstockError) else Unforeseen.of("bad_format", error)
