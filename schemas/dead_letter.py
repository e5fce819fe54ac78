"""The dead-letter topic: coordinates of what could not be answered, never payloads.

Rule: `reference` can be published as it is and names exactly the rows that failed; only a value that is no reference is kept itself,
as `value_b64`.
"""

from typing import Any

import msgspec
from msgspec import Struct

from schemas.prediction import ObjectId, Source
from schemas.reference import Reference, RowRange

_encoder = msgspec.json.Encoder()


class DeadLetter(Struct, frozen=True, kw_only=True):
    """One run of rows, or one object, that failed for one reason. `rows` is None for a whole object."""

    code: str
    stage: str
    message: str
    attempts: int
    stream: str
    source: Source
    object: ObjectId | None
    member: str | None
    rows: tuple[RowRange, ...] | None
    failed_at: int
    model: str
    reference: Reference | None
    v: int = 1
    event_time: int | str | None = None
    attributes: dict[str, Any] | None = None
    value_b64: str | None = None

    def encode(self) -> bytes:
        return _encoder.encode(self)
