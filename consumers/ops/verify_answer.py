"""An output record as far as it is judged: who is answered, in which place, and with what.

Rule: the answer itself stays undecoded bytes; it is only compared. Owner: the judge.
"""

from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from consumers.ops.verify_order import MARKER_ROW
from schemas.errors import SchemaError
from schemas.prediction import Count, Failure, Source


class Answer(Struct):
    """The fields of `schemas.prediction.Prediction` that promise something."""

    id: str
    source: Source
    stream: str
    row: Count | None
    prediction: Raw
    last: bool = False
    rows: Count | None = None
    error: Failure | None = None

    @property
    def is_marker(self) -> bool:
        return self.row is None

    @property
    def place(self) -> int:
        """Its row within the order of the object."""
        return MARKER_ROW if self.row is None else self.row

    @property
    def digest(self) -> int:
        """32 bits that differ where the answer does."""
        return crc32(self.prediction if self.error is None else self.error.code.encode())

    @property
    def index(self) -> int | None:
        """The object's, from the id; None if the id is not what the rest of the record says."""
        head, _, _ = self.id.rpartition("/")
        index = head.rpartition("/")[2]
        if not (index.isascii() and index.isdigit()) or self.id != self.id_with(index):
            return None
        return int(index)

    def id_with(self, index: str) -> str:
        """What the id must be, for an object index."""
        source, row = self.source, "-" if self.row is None else self.row
        return f"{source.topic}/{source.partition}/{source.offset}/{index}/{row}"


_decoder = msgspec.json.Decoder(Answer)


def decode_answer(value: bytes | None) -> Answer:
    """Raises `SchemaError` if it is no record of the output topic."""
    try:
        return _decoder.decode(value or b"")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(str(error)) from None
