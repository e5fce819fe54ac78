"""What a worker and its child that decodes media say to each other, over one socket.

Rule: each message is a letter, a length, and so many bytes; neither side sends more than
`MOST_BYTES` at a time, and a reader that is announced more hangs up. The child asks for the
bytes that it needs, and sends rows in batches.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from consumers.core.payload import BytesRows, Float32Matrix, Form, Matrix, Payload
from consumers.errors import ErrorCode
from consumers.formats.pixels import PixelOptions

# The largest row and what is read ahead, several times over.
MOST_BYTES: Final = 256 << 20

_HEAD: Final = struct.Struct("<cI")
_BATCH: Final = struct.Struct("<II?")  # rows, numbers of a row, are there times?
_RANGE: Final = struct.Struct("<QQ")

TASK, DATA = b"T", b"B"  # to the child
NEED, ROWS, DONE, FAILED = b"N", b"R", b"D", b"F"  # from it

Milliseconds = npt.NDArray[np.int64]


class Task(msgspec.Struct, frozen=True):
    """One object, and how it becomes rows; the first `skip_rows` are only counted."""

    kind: Literal["audio", "video"]
    size: int
    form: Form
    pixels: int
    row_bytes: int
    image: PixelOptions | None
    fps: float | None
    window_ms: int
    hop_ms: int
    skip_rows: int


class Failure(msgspec.Struct, frozen=True):
    """Why the rest of the object cannot be read."""

    code: ErrorCode
    message: str


class Batch(NamedTuple):
    """Rows next to each other; without `payload` nobody wants them. `times_ms`: since the first."""

    rows: int
    payload: Payload | None
    times_ms: Milliseconds | None


class HungUp(Exception):
    """The other side is gone, or makes no sense."""


class Channel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, letter: bytes, *parts: bytes | memoryview) -> None:
        try:
            self._end.sendall(_HEAD.pack(letter, sum(map(len, parts))))
            for part in parts:
                self._end.sendall(part)
        except OSError as error:
            raise HungUp(str(error)) from error

    def receive(self) -> tuple[bytes, bytes]:
        """Raises `TimeoutError` where the socket has one."""
        letter, nbytes = _HEAD.unpack(self._exactly(_HEAD.size))
        if nbytes > MOST_BYTES:
            raise HungUp(f"a message of {nbytes} bytes")
        return letter, self._exactly(nbytes)

    def close(self) -> None:
        self._end.close()

    def _exactly(self, nbytes: int) -> bytes:
        found = bytearray(nbytes)
        view, at = memoryview(found), 0
        while at < nbytes:
            try:
                got = self._end.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as error:
                raise HungUp(str(error)) from error
            if not got:
                raise HungUp("the end of what it said")
            at += got
        return bytes(found)


def packed_range(start: int, stop: int) -> bytes:
    return _RANGE.pack(start, stop)


def range_of(body: bytes) -> tuple[int, int]:
    start, stop = _RANGE.unpack(body)
    return start, stop


def packed_batch(batch: Batch) -> Sequence[bytes | memoryview]:
    """Rows of numbers as they lie; opaque rows after where each of them ends."""
    payload, times = batch.payload, batch.times_ms
    width = payload.values.shape[1] if isinstance(payload, Matrix) else 0
    parts: list[bytes | memoryview] = [_BATCH.pack(batch.rows, width, times is not None)]
    if times is not None:
        parts.append(times.astype("<i8").tobytes())
    if isinstance(payload, Matrix):
        parts.append(payload.values.tobytes())
    elif isinstance(payload, BytesRows):
        parts += [payload.ends.astype("<i8").tobytes(), bytes(payload.body)]
    return parts


def batch_of(body: bytes) -> Batch:
    """Raises `ValueError` for what is none."""
    if len(body) < _BATCH.size:
        raise ValueError("a batch that breaks off")
    rows, width, has_times = _BATCH.unpack_from(body)
    at = _BATCH.size
    if not rows:
        raise ValueError("a batch of no rows")
    if not has_times:
        return Batch(rows, None, None)
    times = np.frombuffer(body, "<i8", rows, at)
    at += times.nbytes
    if width:
        values: Float32Matrix = np.frombuffer(body, "<f4", rows * width, at)
        return Batch(rows, Matrix(values.reshape(rows, width)), times)
    ends = np.frombuffer(body, "<i8", rows, at)
    payload = body[at + ends.nbytes :]
    if len(payload) != ends[-1] or (np.diff(ends, prepend=0) < 4).any():
        raise ValueError("opaque rows that do not add up")
    return Batch(rows, BytesRows(payload, ends), times)
