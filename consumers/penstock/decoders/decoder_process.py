"""What runs in the decoders, and in the zygote: the process that decoders are forked from,
and that kills them when it is told to.

Rule: a decoder decodes one object after the other, until the worker closes its socket; it reads
only socket and inbox, and writes only to socket and outbox. To start Python with our libraries
takes half a second, to fork a few milliseconds, so the zygote has the code in memory; it decodes
nothing itself, so no object can damage it. It ends with the worker, and the decoders end with it.
"""

import errno
import gc
import logging
import os
import select
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import msgspec

from penstock.decoders import late_libraries
from penstock.decoders.bounds import (
    MOST_MEMORY_BYTES,
    bound,
    end_with_parent,
    readable_files,
)
from penstock.decoders.packing import Buffer, joined, packed, with_end
from penstock.decoders.protocol import Task, decode, tasks_heard
from penstock.decoders.socket_messages import (
    DATA,
    ENDED,
    FAILED,
    LAST,
    MORE,
    MOST_CHARS,
    MOST_NOTES,
    NEED,
    ROWS,
    SEVERAL,
    SHORT_BYTES,
    TAKEN,
    TASK,
    Box,
    End,
    Note,
    boxes,
    heard,
    placed,
    said,
)
from penstock.decoders.system_calls import (
    HANDING_OVER,
    call_told,
    go_on,
    may_go_on,
    prepare,
)
from penstock.errors import Poison, Unforeseen
from penstock.formats.registry import formats
from penstock.formats.runs import Notices, RowOptions, Run
from penstock.formats.source import Need
from penstock.process.memory import give_back, keep_heap_small, without_pandas

RANGE = struct.Struct("<qq")
# The errors of a socket whose other end was closed.
_GONE: Final = (BrokenPipeError, ConnectionResetError)


# What pyarrow and Python say when the system has no process to spare for a thread.
_NO_THREAD: Final = ("Failed to launch worker thread", "can't start new thread")
# After this time without an object, a decoder gives its free memory back: 50 MB after a Parquet of
# 20 MB. It takes some 0.3 to 1.2 ms, so not after each object.
_BUSY_MS: Final = 1_000


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
    """Holds log lines until they are sent to the worker, and of many about one object the first."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[Note] = []
        self._left_chars = MOST_CHARS

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self._add(record.levelno, text, "")

    def once(self, text: str, about: str) -> None:
        self._add(logging.WARNING, text, about)

    def _add(self, level: int, text: str, about: str) -> None:
        if len(self._notes) == MOST_NOTES or not self._left_chars:
            return
        about = about[: self._left_chars // 2]
        note = Note(level, text[: self._left_chars - len(about)], about)
        self._left_chars -= note.chars
        self._notes.append(note)

    def taken(self) -> list[Note]:
        notes, self._notes, self._left_chars = self._notes, [], MOST_CHARS
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

    def __init__(self, end: socket.socket, inbox: Box, outbox: Box) -> None:
        self._end = end
        self._inbox, self._outbox = inbox, outbox
        self._waiting = select.poll()
        self._waiting.register(end, select.POLLIN)

    def is_quiet(self, ms: int) -> bool:
        """True if nothing comes in this time."""
        return not self._waiting.poll(ms)

    def ask(self, need: Need) -> bytes:
        return self.say(NEED, [RANGE.pack(*need)])

    def say(self, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> bytes:
        self.tell(letter, parts)
        return self.hear(DATA)

    def tell(self, letter: bytes, parts: Sequence[bytes | memoryview] = ()) -> None:
        left = sum(map(len, parts))
        if left <= SHORT_BYTES:
            self._send(said(letter, parts))
            return
        for nbytes in self._outbox.filled(parts):
            left -= nbytes
            self._send([placed(MORE if left else letter, nbytes)])
            if left:
                self.hear(TAKEN)

    def hear(self, wanted: bytes) -> bytes:
        pieces: list[bytes] = []
        while True:
            try:
                message = self._end.recv(SHORT_BYTES + 2)
            except _GONE as error:
                raise _HungUp from error
            except OSError as error:
                raise _Failed(str(error)) from error
            if not message:
                raise _HungUp
            letter, piece = heard(message, self._inbox)
            pieces.append(bytes(piece))
            if letter == wanted:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if letter != MORE:
                raise _HungUp
            self.tell(TAKEN)

    def _send(self, message: Sequence[bytes | memoryview]) -> None:
        try:
            os.writev(self._end.fileno(), message)
        except _GONE as error:
            raise _HungUp from error
        except OSError as error:
            raise _Failed(str(error)) from error


def serve(end: socket.socket, memory: int) -> None:
    """Serve tasks until the process ends."""
    line, notes = _Line(end, *boxes(memory)), _Notes()
    logging.getLogger().handlers = [notes]
    had = late_libraries.loaded()
    options: RowOptions | None = None
    try:
        while True:
            if line.is_quiet(_BUSY_MS):
                give_back()
            tasks = tasks_heard(line.hear(TASK), options)
            options = tasks[-1].options

            def ending(done: End) -> bytes:
                done.libraries = sorted(late_libraries.loaded() - had)
                return msgspec.msgpack.encode(done)

            if len(tasks) > 1:
                line.tell(SEVERAL, joined([_decoded_whole(task, notes, ending) for task in tasks]))
                continue
            done, last = _decoded(
                tasks[0], line.ask, lambda runs: line.say(ROWS, packed(runs)), notes
            )
            if last:
                line.tell(LAST, with_end(ending(done), last))
            else:
                line.tell(ENDED, [ending(done)])
    except _HungUp:
        return
    except _Failed as failed:
        with suppress(*_GONE):
            os.writev(end.fileno(), said(FAILED, [str(failed).encode()]))


class _Alone(BaseException):
    """An object of several takes more than one turn."""


def _decoded_whole(task: Task, notes: _Notes, ending: Callable[[End], bytes]) -> list[Buffer]:
    """What is said of one of several objects; nothing if it must be read alone."""

    def refuse(_: object) -> NoReturn:
        raise _Alone

    try:
        done, last = _decoded(task, refuse, refuse, notes)
    except _Alone:
        notes.taken()
        return []
    return with_end(ending(done), last)


def _decoded(
    task: Task,
    ask: Callable[[Need], bytes],
    give: Callable[[list[Run]], object],
    notes: _Notes,
) -> tuple[End, list[Run]]:
    """The end of the object, and the rows that are not given yet."""
    object.__setattr__(task.options, "notices", _ToWorker(notes))
    try:
        last = decode(task, ask, give)
    except Poison as poison:
        if any(words in str(poison.__cause__) for words in _NO_THREAD):
            raise _Failed(str(poison.__cause__)) from poison
        trace = ""
        if isinstance(poison.__cause__, MemoryError):
            most = f"{MOST_MEMORY_BYTES >> 20} MiB, which is all that a decoder has"
            return End(notes.taken(), "too_large", f"it needs more than {most}"), []
        if isinstance(poison, Unforeseen):
            trace = "".join(traceback.format_exception(poison.__cause__ or poison))
        reason = str(poison)[:MOST_CHARS]
        return End(notes.taken(), poison.code, reason, trace[-MOST_CHARS:]), []
    return End(notes.taken()), last


FORK, KILL = b"F", b"K"  # sent to the zygote
FORKED, REFUSED, EXITED = b"P", b"R", b"X"  # sent from the zygote
MESSAGE_BYTES: Final = 256
# The exit code of a decoder that the system refused its limits, so that it has read nothing: the
# EX_TEMPFAIL of sysexits.h.
UNREADY: Final = 75
_MOST_REASON_BYTES: Final = MESSAGE_BYTES - 1


class _Child:
    """A decoder as the zygote knows it. `line`: tells of a call that is not allowed; before it is
    known, the socket on which the decoder hands it over. `call`: the number of such a call.
    """

    def __init__(self, number: int, line: socket.socket) -> None:
        self.number = number
        self.ended = os.pidfd_open(number)  # is ready when the process has ended
        self.told = line.detach()
        self.call: int | None = None

    def close(self) -> None:
        os.close(self.ended)
        os.close(self.told)


def _moved(end: socket.socket, number: int) -> socket.socket:
    with end:
        os.dup2(end.fileno(), number)
    return socket.socket(fileno=number)


class _Zygote:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._files: int | None = None
        self._is_prepared = False
        self._children: dict[int, _Child] = {}
        self._waiting = selectors.DefaultSelector()

    def run(self) -> None:
        """Returns when the worker has closed its end."""
        self._waiting.register(self._end, selectors.EVENT_READ)
        while True:
            for key, _ in self._waiting.select():
                if key.data is None:
                    if not self._hear():
                        return
                # What came before in this round may have ended what this tells of.
                elif self._waiting.get_map().get(key.fileobj) is key:
                    key.data()

    def _hear(self) -> bool:
        message, received, _, _ = socket.recv_fds(self._end, MESSAGE_BYTES, 2)
        if message[:1] == FORK:
            self._end.send(self._forked(message[1:].decode().split(), received))
        elif message[:1] == KILL and int(message[1:]) in self._children:
            os.kill(int(message[1:]), signal.SIGKILL)
        return bool(message)

    def _forked(self, libraries: Sequence[str], received: Sequence[int]) -> bytes:
        """The answer to `FORK`. If the system refuses what a decoder needs, as at a limit of
        processes or files, the zygote says so, and the decoders that there are go on.
        """
        try:
            if len(received) < 2:  # the kernel drops files above a limit
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self._load(libraries)
            return FORKED + b"%d" % self._fork(*received)
        except OSError as error:
            return REFUSED + str(error).encode()[:_MOST_REASON_BYTES]
        finally:
            for each in received:
                os.close(each)

    def _load(self, libraries: Sequence[str]) -> None:
        fresh = frozenset(libraries) - late_libraries.loaded()
        late_libraries.load(fresh)
        if fresh or not self._is_prepared:
            self._prepare()

    def _prepare(self) -> None:
        """Make ready for forks what is loaded."""
        # Without this call the garbage collector would write to all objects, and the decoders could
        # not share the zygote's memory.
        gc.freeze()
        files = readable_files()
        if self._files is not None:
            os.close(self._files)
        self._files = files
        self._is_prepared = True

    def _fork(self, line: int, memory: int) -> int:
        zygote = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            number = os.fork()
            if not number:
                ours.close()
                self._become_decoder(zygote, line, memory, theirs)
            try:
                child = _Child(number, ours)
            except OSError:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
                raise
        self._children[number] = child
        self._register(child.ended, self._ended, child)
        self._register(child.told, self._take_over, child)
        return number

    def _become_decoder(
        self, zygote: int, line: int, memory: int, death_line: socket.socket
    ) -> NoReturn:
        code = UNREADY
        try:
            end_with_parent(zygote)
            self._waiting.close()
            for other in self._children.values():
                other.close()
            self._end.close()
            death_line = _moved(death_line, HANDING_OVER)
            notices = bound(self._files)
            if notices is not None:
                socket.send_fds(death_line, [b"N"], [notices])
                os.close(notices)
            death_line.close()
            code = 1
            serve(socket.socket(fileno=line), memory)
            code = 0
        finally:
            os._exit(code)

    def _register(self, what: int, act: Callable[[_Child], object], child: _Child) -> None:
        self._waiting.register(what, selectors.EVENT_READ, partial(act, child))

    def _take_over(self, child: _Child) -> None:
        """Take what tells of the decoder's calls."""
        self._waiting.unregister(child.told)
        end = socket.socket(fileno=child.told)
        _, received, _, _ = socket.recv_fds(end, 1, 1)
        end.detach()
        for notices in received:
            os.dup2(notices, child.told, inheritable=False)
            os.close(notices)
            self._register(child.told, self._judge, child)

    def _judge(self, child: _Child) -> None:
        """Decide about a call that waits."""
        with suppress(OSError):  # it has ended, or the system hides its threads
            call = call_told(child.told)
            if call is None:
                return
            if may_go_on(call, child.number):
                go_on(call, child.told)
                return
            child.call = call.number
        os.kill(child.number, signal.SIGKILL)

    def _ended(self, child: _Child) -> None:
        del self._children[child.number]
        for what in (child.ended, child.told):
            if what in self._waiting.get_map():
                self._waiting.unregister(what)
        child.close()
        _, status = os.waitpid(child.number, 0)
        code = os.waitstatus_to_exitcode(status)
        if child.call is not None:
            code = -signal.SIGSYS
        self._end.send(EXITED + b"%d %d %d" % (child.number, code, child.call or -1))


def main() -> None:
    number = int(sys.argv[1])
    end = socket.socket(fileno=os.dup(number))  # the lowest number that is free
    os.close(number)
    os.dup2(0, HANDING_OVER)  # so that no other file gets this number, which decoders need
    # Who started the worker may have it ignored. Then nobody could ask how a decoder has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keep_heap_small()
    without_pandas()
    formats()  # those of users' packages, too
    prepare()
    try:
        _Zygote(end).run()
    except OSError:
        return  # the worker is gone


if __name__ == "__main__":
    main()
