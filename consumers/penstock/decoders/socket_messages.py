"""How messages between a worker and its decoder are carried: by one socket, which keeps the
messages apart.

Rule: short data is part of the message. Long data to the worker is in memory that the decoder seals
and hands over, so that the decoder cannot change it later. Long data to the decoder goes piece by
piece through the inbox, which is memory that both processes have mapped. Owner: the two ends of one
decoder's socket.
"""

import fcntl
import mmap
import os
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.errors import ErrorCode

TASK, DATA, MORE = b"T", b"B", b"M"  # sent to the decoder; MORE: another piece follows
NEED, ROWS, ENDED, TAKEN = b"N", b"R", b"E", b"K"  # sent from the decoder
# Sent from a decoder that ends, with the error: the system refused what the decoder needs.
FAILED = b"F"

INBOX_BYTES: Final = 1 << 20
# Up to this size copying the data costs less than mapping memory, and the socket takes a message at
# once.
SHORT_BYTES: Final = 32 << 10
# The largest message: several times as much as the largest row together with the bytes that are
# read ahead.
MOST_BYTES: Final = 512 << 20
# The inbox keeps its size: the kernel would end a worker that writes where memory was cut off.
_SIZE_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEALS: Final = _SIZE_SEALS | fcntl.F_SEAL_WRITE
_BLOCK_BYTES: Final = 512  # as stat(2) counts
# One call writes at most this many parts. Linux takes 1,024 (IOV_MAX).
_PARTS: Final = 512


class Note(msgspec.Struct, frozen=True):
    """A line for the worker's log. `about`: if it is not empty, only the first line about the same
    thing is logged, and not one for each object.
    """

    level: int
    text: str
    about: str = ""


class End(msgspec.Struct):
    """The end of an object. `code` and `message`: why the rest of the object cannot be read; `code`
    is None if all of it was read. `trace`: the traceback of an unforeseen exception. `libraries`:
    the late libraries that the decoder has loaded.
    """

    notes: list[Note]
    code: ErrorCode | None = None
    message: str = ""
    trace: str = ""
    libraries: list[str] = []


class Message(NamedTuple):
    letter: bytes
    body: memoryview


def send(end: socket.socket, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> None:
    """Send a message from the decoder."""
    nbytes = sum(map(len, parts))
    if nbytes <= SHORT_BYTES:
        end.sendmsg([letter, *_joined(parts)])
        return
    memory = os.memfd_create("rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write(memory, parts)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        socket.send_fds(end, [letter], [memory])
    finally:
        os.close(memory)


def _joined(parts: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    return parts if len(parts) < _PARTS else [b"".join(parts)]


def _write(memory: int, parts: Sequence[bytes | memoryview]) -> None:
    waiting = [memoryview(part) for part in parts if len(part)][::-1]
    while waiting:
        batch = waiting[: -_PARTS - 1 : -1]
        written = os.writev(memory, batch)
        while waiting and written >= len(waiting[-1]):
            written -= len(waiting.pop())
        if written:
            waiting[-1] = waiting[-1][written:]


def receive(end: socket.socket) -> Message:
    """Receive a message in the worker. Raises `EOFError` if the decoder is gone, `ValueError` for a
    malformed message.
    """
    data, received, _, _ = socket.recv_fds(end, SHORT_BYTES + 1, 1)
    try:
        if not data:
            raise EOFError
        if not received:
            return Message(data[:1], memoryview(data)[1:])
        return Message(data[:1], _mapped(received[0]))
    finally:
        for memory in received:
            os.close(memory)


def _mapped(memory: int) -> memoryview:
    try:
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"no memory: {error}") from error
    if seals & _SEALS != _SEALS:
        raise ValueError("memory that may change")
    state = os.fstat(memory)  # behind the seals, or the size could still change
    nbytes = state.st_size
    if not 0 < nbytes <= MOST_BYTES:
        raise ValueError(f"a message of {nbytes} bytes")
    if state.st_blocks * _BLOCK_BYTES < nbytes:  # to read the rest would take our memory
        raise ValueError("memory that was not written")
    return memoryview(mmap.mmap(memory, nbytes, prot=mmap.PROT_READ))


def new_inbox() -> int:
    """Memory of the inbox of one decoder."""
    memory = os.memfd_create("inbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, INBOX_BYTES)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SIZE_SEALS | fcntl.F_SEAL_SEAL)
    return memory


class Inbox:
    """Memory for bytes on their way to one decoder. The worker writes a piece by `put`, and the
    decoder reads it by `take`.
    """

    def __init__(self, memory: int) -> None:
        self._map = mmap.mmap(memory, INBOX_BYTES)

    def put(self, piece: memoryview) -> None:
        self._map[: len(piece)] = piece

    def take(self, nbytes: int) -> bytes:
        return self._map[:nbytes]

    def close(self) -> None:
        self._map.close()


def said(letter: bytes, data: bytes) -> bytes:
    """A message to the decoder that carries its bytes itself."""
    return letter + b"=" + data


def placed(letter: bytes, nbytes: int) -> bytes:
    """A message to the decoder whose bytes are in its inbox."""
    return letter + b"@" + nbytes.to_bytes(4, "little")


def heard(message: bytes, inbox: Inbox) -> tuple[bytes, bytes]:
    """Receive a message in the decoder. Returns its letter and its bytes."""
    if message[1:2] == b"=":
        return message[:1], message[2:]
    return message[:1], inbox.take(int.from_bytes(message[2:], "little"))
