"""The trace of one object, which its ticket carries.

Rule: a trace is made when the object's record is decoded, and only if traces are configured. The
spans are made when the object is delivered. Owner: the ticket.
"""

from typing import Literal

# Why the spans of an object are sent.
Why = Literal["caller", "ratio", "error", "slow"]


class Trace:
    """`why`: None as long as no spans of the object are to be sent. `parent_id`: the caller's span;
    0: no caller sent one. `given`: the caller's own `traceparent`. `batch`: trace and span of the
    last request to the model that carried rows of the object.
    """

    __slots__ = ("batch", "code", "given", "message", "parent_id", "span_id", "trace_id", "why")

    def __init__(
        self, trace_id: int, parent_id: int, span_id: int, why: Why | None, given: bytes | None
    ) -> None:
        self.given = given
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = span_id
        self.why = why
        self.batch: tuple[int, int] | None = None
        # The object's first error.
        self.code: str | None = None
        self.message = ""

    @property
    def hex_id(self) -> str:
        """The trace id, as people and other tools write it."""
        return f"{self.trace_id:032x}"

    def failed(self, code: str, message: str) -> None:
        if self.code is None:
            self.code, self.message = code, message
