"""What runs in the decoders, and in the zygote: the process that decoders are forked from.

Rule: a decoder decodes one object after the other, until the worker closes its socket. It reads
only the socket and its inbox, and writes only to the socket, to which its log lines go as well. To
start Python with our libraries takes half a second, but to fork takes a few milliseconds. So the
zygote has the code of the decoders in memory. It decodes no objects itself, so no object can damage
it. It ends with the worker, and the decoders end with the zygote. Owner: `zygote_client`, which
starts the zygote.
"""

import gc
import logging
import os
import pickle
import selectors
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

import msgspec

from penstock.decoders.bounds import MOST_MEMORY_BYTES, bound, end_with_parent
from penstock.decoders.packing import packed
from penstock.decoders.protocol import Task, decode
from penstock.decoders.socket_messages import (
    DATA,
    ENDED,
    FAILED,
    MORE,
    MOST_BYTES,
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
from penstock.process.small_memory import without_pandas

RANGE = struct.Struct("<qq")
# The errors of a socket whose other end was closed.
_GONE: Final = (BrokenPipeError, ConnectionResetError)


class _HungUp(BaseException):
    """The worker has ended, or has closed the socket of this decoder: its end says so by EOF, EPIPE
    or ECONNRESET, and no other error means it.
    """


class _Failed(BaseException):
    """The system refused what every message needs, such as memory that can be sealed. This is no
    fault of the object. Not an `Exception`, because code that reads an object takes an `OSError`
    for damage of the object.
    """


class _Notes(logging.Handler):
    """Holds log lines until they are sent to the worker."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[Note] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self._notes.append(Note(record.levelno, text))

    def once(self, text: str, about: str) -> None:
        self._notes.append(Note(logging.WARNING, text, about))

    def taken(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes


class _ToWorker(Notices):
    """All notices go to the worker, which knows which notices it has logged already."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def once(self, text: str, *, about: str = "") -> None:
        self._notes.once(text, about or text)


class _Line:
    """The decoder's end of the socket."""

    def __init__(self, end: socket.socket, inbox: Inbox) -> None:
        self._end = end
        self._inbox = inbox

    def ask(self, need: Need) -> bytes:
        return self.say(NEED, [RANGE.pack(*need)])

    def say(self, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> bytes:
        self.tell(letter, parts)
        return self.hear(DATA)

    def tell(self, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> None:
        try:
            send(self._end, letter, parts)
        except _GONE as error:
            raise _HungUp from error
        except OSError as error:
            raise _Failed(str(error)) from error

    def hear(self, wanted: bytes) -> bytes:
        found: list[bytes] = []
        while True:
            try:
                message = self._end.recv(SHORT_BYTES + 2)
            except _GONE as error:
                raise _HungUp from error
            except OSError as error:
                raise _Failed(str(error)) from error
            if not message:
                raise _HungUp
            letter, data = heard(message, self._inbox)
            found.append(data)
            if letter == wanted:
                return found[0] if len(found) == 1 else b"".join(found)
            if letter != MORE:
                raise _HungUp
            self.tell(TAKEN)


def serve(end: socket.socket, memory: int) -> None:
    """Serve tasks until the process ends."""
    inbox = Inbox(memory)
    os.close(memory)
    line, notes = _Line(end, inbox), _Notes()
    logging.getLogger().handlers = [notes]
    try:
        while True:
            task: Task = pickle.loads(line.hear(TASK))
            line.tell(ENDED, [msgspec.msgpack.encode(_decoded(task, line, notes))])
    except _HungUp:
        return
    except _Failed as failed:
        with suppress(*_GONE):
            send(end, FAILED, [str(failed).encode()])


def _decoded(task: Task, line: _Line, notes: _Notes) -> End:
    object.__setattr__(task.options, "notices", _ToWorker(notes))
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


FORK, KILL = b"F", b"K"  # sent to the zygote
FORKED, EXITED = b"P", b"X"  # sent from the zygote
_MESSAGE_BYTES: Final = 64


class _Zygote:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        # For each decoder's process id: a descriptor that is ready when the process has ended.
        self._decoders: dict[int, int] = {}
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(end, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj is self._end:
                    if not self._hear():
                        return
                else:
                    self._ended(key.data)

    def _hear(self) -> bool:
        message, received, _, _ = socket.recv_fds(self._end, _MESSAGE_BYTES, 2)
        if message[:1] == FORK:
            self._fork(*received)
        elif message[:1] == KILL and int(message[1:]) in self._decoders:
            os.kill(int(message[1:]), 9)
        return bool(message)

    def _fork(self, line: int, memory: int) -> None:
        zygote = os.getpid()
        number = os.fork()
        if not number:
            self._become_decoder(zygote, line, memory)
        os.close(line)
        os.close(memory)
        self._decoders[number] = os.pidfd_open(number)
        self._waiting.register(self._decoders[number], selectors.EVENT_READ, number)
        self._end.send(FORKED + b"%d" % number)

    def _become_decoder(self, zygote: int, line: int, memory: int) -> NoReturn:
        code = 1
        try:
            end_with_parent(zygote)
            self._waiting.close()
            for other in self._decoders.values():
                os.close(other)
            bound(MOST_BYTES)
            self._end.close()
            serve(socket.socket(fileno=line), memory)
            code = 0
        finally:
            os._exit(code)

    def _ended(self, number: int) -> None:
        told = self._decoders.pop(number)
        self._waiting.unregister(told)
        os.close(told)
        _, status = os.waitpid(number, 0)
        self._end.send(EXITED + b"%d %d" % (number, os.waitstatus_to_exitcode(status)))


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))
    without_pandas()
    # Without this call the garbage collector would write to all objects, and the decoders could not
    # share the zygote's memory.
    gc.freeze()
    try:
        _Zygote(end).run()
    except OSError:
        return  # the worker is gone


if __name__ == "__main__":
    main()
