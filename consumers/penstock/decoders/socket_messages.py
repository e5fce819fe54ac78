"""How messages between a worker and its decoder are carried: by one socket, which keeps the
messages apart.

Rule: short data is part of the message. Long data goes piece by piece through boxes: memory of one
size that both processes have mapped, and that only the writer's next piece changes. A decoder that
was taken over does not keep to that, so the worker copies a piece before it looks at it.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from penstock.errors import ErrorCode

TASK, DATA = b"T", b"B"  # sent to the decoder
MORE, TAKEN = b"M", b"K"  # sent by both; MORE: another piece follows; TAKEN: it may come
# Sent from the decoder. LAST: the end of the object, its last rows behind it. SEVERAL: the same
# of several objects; nothing for one that must be read alone.
NEED, ROWS, ENDED, LAST, SEVERAL = b"N", b"R", b"E", b"L", b"S"
# Sent from a decoder that ends, with the error: the system refused what the decoder needs.
FAILED = b"F"

INBOX_BYTES: Final = 1 << 20
# Most pieces of rows have 2 MiB and a run.
OUTBOX_BYTES: Final = 4 << 20
# Up to this size the socket takes a message at once.
SHORT_BYTES: Final = 32 << 10
# The size of the boxes is fixed: the kernel would end a worker that writes where memory was cut
# off.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# One call takes at most this many parts. Linux takes 1,024 (IOV_MAX).
_PARTS: Final = 512


# An honest object causes a few lines in the log, and loads few libraries. Decoders send no more of
# each than this, and so many characters of all lines.
MOST_NOTES: Final = 20
MOST_CHARS: Final = 8 << 10


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line for the worker's log. `about`: if it is not empty, only the first line about the same
    thing is logged, and not one for each object.
    """

    level: int
    text: Annotated[str, msgspec.Meta(max_length=MOST_CHARS)]
    about: Annotated[str, msgspec.Meta(max_length=MOST_CHARS)] = ""

    @property
    def chars(self) -> int:
        return len(self.text) + len(self.about)


class End(msgspec.Struct, forbid_unknown_fields=True):
    """The end of an object. `code` and `message`: why the rest of the object cannot be read; `code`
    is None if all of it was read. `trace`: the traceback of an unforeseen exception. `libraries`:
    the late libraries that the decoder has loaded.
    """

    notes: Annotated[list[Note], msgspec.Meta(max_length=MOST_NOTES)]
    code: ErrorCode | None = None
    message: Annotated[str, msgspec.Meta(max_length=MOST_CHARS)] = ""
    trace: Annotated[str, msgspec.Meta(max_length=MOST_CHARS)] = ""
    libraries: Annotated[list[str], msgspec.Meta(max_length=MOST_NOTES)] = []


class Message(NamedTuple):
    letter: bytes
    body: bytes | bytearray


class Box:
    """Memory for bytes on their way to the other process."""

    def __init__(self, memory: int, start: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._map = mmap.mmap(memory, nbytes, offset=start)

    def filled(self, parts: Iterable[bytes | memoryview]) -> Iterator[int]:
        """Write the parts, one behind the other. Each time the box is full, and at the end, this
        gives the number of bytes in it, which the other process must then take.
        """
        at = 0
        for part in parts:
            view = memoryview(part)
            while view.nbytes:
                piece = view[: self.nbytes - at]
                self._map[at : at + len(piece)] = piece
                at, view = at + len(piece), view[len(piece) :]
                if at == self.nbytes:
                    yield at
                    at = 0
        if at:
            yield at

    def take(self, nbytes: int) -> bytes:
        if nbytes > self.nbytes:
            raise ValueError(f"a piece of {nbytes} bytes")
        return self._map[:nbytes]

    def empty(self) -> None:
        """Give its memory back to the system. Nobody may be about to take a piece."""
        self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        self._map.close()


def new_boxes() -> int:
    """Memory for the boxes of one decoder."""
    memory = os.memfd_create("boxes", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memory, INBOX_BYTES + OUTBOX_BYTES)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(memory)
        raise
    return memory


def boxes(memory: int) -> tuple[Box, Box]:
    """The inbox and the outbox of a decoder; closes the descriptor."""
    inbox, outbox = Box(memory, 0, INBOX_BYTES), Box(memory, INBOX_BYTES, OUTBOX_BYTES)
    os.close(memory)
    return inbox, outbox


def said(letter: bytes, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The parts of a message that carries its bytes itself."""
    return [letter + b"=", *(parts if len(parts) < _PARTS else [b"".join(parts)])]


def placed(letter: bytes, nbytes: int) -> bytes:
    """A message whose bytes are in a box."""
    return letter + b"@" + nbytes.to_bytes(4, "little")


def heard(message: bytes, box: Box) -> Message:
    """Raises `ValueError` for a malformed message."""
    letter, how, body = message[:1], message[1:2], message[2:]
    if how == b"=":
        return Message(letter, body)
    if how == b"@" and len(body) == 4:
        return Message(letter, box.take(int.from_bytes(body, "little")))
    raise ValueError("a message of another kind")
