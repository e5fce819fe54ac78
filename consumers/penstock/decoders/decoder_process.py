"""The decoder's own side: decodes one object after the other, until the worker closes the socket.

Rule: a decoder reads only its socket and its inbox, and writes only to the socket, its log lines
included. Owner: the zygote, which forks it.
"""

import logging
import os
import pickle
import socket
import struct
import traceback
from collections.abc import Sequence

import msgspec

from penstock.decoders.bounds import MOST_MEMORY_BYTES
from penstock.decoders.packing import packed
from penstock.decoders.protocol import Task, decode
from penstock.decoders.socket_messages import (
    DATA,
    ENDED,
    MORE,
    NEED,
    ROWS,
    SHORT_BYTES,
    TAKEN,
    TASK,
    End,
    Inbox,
    Note,
    heard,
    send,
)
from penstock.errors import Poison, Unforeseen
from penstock.formats.base.runs import Notices
from penstock.formats.base.source import Need

RANGE = struct.Struct("<qq")


class _HungUp(BaseException):
    """The worker has ended, or has closed this decoder."""


class _Notes(logging.Handler):
    """Holds log lines until they are sent to the worker."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[Note] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self._notes.append(Note(record.levelno, text, is_notice=False))

    def notice(self, text: str) -> None:
        self._notes.append(Note(logging.WARNING, text, is_notice=True))

    def taken(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes


class _Line:
    """The decoder's end of the socket."""

    def __init__(self, end: socket.socket, inbox: Inbox) -> None:
        self._end = end
        self._inbox = inbox

    def ask(self, need: Need) -> bytes:
        return self.say(NEED, [RANGE.pack(*need)])

    def say(self, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> bytes:
        send(self._end, letter, parts)
        return self.hear(DATA)

    def hear(self, wanted: bytes) -> bytes:
        found: list[bytes] = []
        while True:
            message = self._end.recv(SHORT_BYTES + 2)
            if not message:
                raise _HungUp
            letter, data = heard(message, self._inbox)
            found.append(data)
            if letter == wanted:
                return found[0] if len(found) == 1 else b"".join(found)
            if letter != MORE:
                raise _HungUp
            send(self._end, TAKEN)


def serve(end: socket.socket, memory: int) -> None:
    """Serve tasks until the process ends."""
    inbox = Inbox(memory)
    os.close(memory)
    line, notes = _Line(end, inbox), _Notes()
    logging.getLogger().handlers = [notes]
    try:
        while True:
            task: Task = pickle.loads(line.hear(TASK))
            send(end, ENDED, [msgspec.msgpack.encode(_decoded(task, line, notes))])
    except (_HungUp, OSError):
        return


def _decoded(task: Task, line: _Line, notes: _Notes) -> End:
    # All notices go to the worker, which knows which notices it has logged already.
    object.__setattr__(task.options, "notices", Notices(notes.notice))
    try:
        decode(task, line.ask, lambda runs: line.say(ROWS, packed(runs)))
    except Poison as poison:
        trace = ""
        if isinstance(poison.__cause__, MemoryError):
            most = f"{MOST_MEMORY_BYTES >> 20} MiB, which is all that a decoder has"
            return End(notes.taken(), "too_large", f"it needs more than {most}")
        if isinstance(poison, Unforeseen):
            trace = "".join(traceback.format_exception(poison.__cause__ or poison))
        return End(notes.taken(), poison.code, str(poison), trace)
    return End(notes.taken())
