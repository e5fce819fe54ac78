"""The decoder's own side: it is given tasks, one after the other, until the worker hangs up.

Rule: it reads only its socket and its inbox, and answers only on the socket, also with lines to be
logged. Owner: the zygote, which forks it.
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
    DONE,
    FAILED,
    MORE,
    NEED,
    ROWS,
    SHORT_BYTES,
    TAKEN,
    TASK,
    Done,
    Failure,
    Inbox,
    Note,
    heard,
    send,
)
from penstock.errors import Poison, Unforeseen
from penstock.formats.base.ranged import Need
from penstock.formats.base.runs import Notices

RANGE = struct.Struct("<qq")


class _HungUp(BaseException):
    """The worker is gone, or has closed this decoder."""


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


class _SaidNotices(Notices):
    """Notices that are sent to the worker, which knows those it has logged already."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notes.notice(text)


class _Line:
    """Send a message to the worker."""

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
            letter, said = _decoded(task, line, notes)
            send(end, letter, [msgspec.msgpack.encode(said)])
    except (_HungUp, OSError):
        return


def _decoded(task: Task, line: _Line, notes: _Notes) -> tuple[bytes, Done | Failure]:
    object.__setattr__(task.options, "notices", _SaidNotices(notes))
    try:
        decode(task, line.ask, lambda runs: line.say(ROWS, packed(runs)))
    except Poison as poison:
        trace = ""
        if isinstance(poison.__cause__, MemoryError):
            most = f"{MOST_MEMORY_BYTES >> 20} MiB, which is all that a decoder has"
            return FAILED, Failure("too_large", f"it needs more than {most}", "", notes.taken())
        if isinstance(poison, Unforeseen):
            trace = "".join(traceback.format_exception(poison.__cause__ or poison))
        return FAILED, Failure(poison.code, str(poison), trace, notes.taken())
    return DONE, Done(notes.taken())
