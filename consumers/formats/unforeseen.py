"""What a decoder raises although nobody foresaw it, as the reason why its object is bad.

Rule: whoever decodes passes here what is raised below, so that it can be told to the worker, which
answers, logs and counts it (`services/unforeseen.py`). A decoder that asks for more memory than
there is does so for its object: for 8 GB, of 900 bytes.
"""

from consumers.errors import PenstockError, Unforeseen


def foreseen(error: Exception) -> PenstockError:
    """The error itself if it was raised on purpose, else what the object is answered with."""
    return error if isinstance(error, PenstockError) else Unforeseen.of("bad_format", error)
