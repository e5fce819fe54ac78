"""Reads the records in a value of the output topic: a single one, a JSON array, or an Arrow block.

Rule: a value that cannot be read is returned as it is, so that the caller reports it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

_decode_array = msgspec.json.Decoder(list[Raw]).decode
# Every Arrow IPC stream begins with these bytes, and no JSON text does.
_ARROW: Final = b"\xff\xff\xff\xff"


def records_of(value: bytes) -> Sequence[bytes]:
    """The records as JSON, each as if it were alone in a value."""
    if value[:1] == b"[":
        try:
            return [bytes(record) for record in _decode_array(value)]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return [value]
    return _of_arrow(value) if value[:4] == _ARROW else [value]


def _of_arrow(value: bytes) -> Sequence[bytes]:
    import pyarrow as pa  # noqa: PLC0415 (large, and rarely needed)

    from penstock.encodings.arrow_blocks import records  # noqa: PLC0415

    try:
        return list(records(value))
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return [value]
