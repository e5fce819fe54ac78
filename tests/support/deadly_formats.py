"""A format of a user's package that does to its process what the object says."""

import ctypes
import errno
import fcntl
import logging
import mmap
import os
import platform
import pwd
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from select import epoll

import msgspec
import numpy as np
import pyarrow as pa

from penstock.core.rows.payload import BytesRows, JsonRows, Kept, Matrix
from penstock.decoders import socket_messages
from penstock.decoders.decoder_process import _Line
from penstock.decoders.packing import packed
from penstock.decoders.protocol import TAIL
from penstock.decoders.socket_messages import End, Note
from penstock.decoders.system_calls import HANDING_OVER, MOST_THREADS
from penstock.errors import ErrorCode, Poison
from penstock.formats.format import Format, makes
from penstock.formats.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.registry import _claimed, formats, known_formats
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import Need
from penstock.packages import plugins

ROWS = np.arange(4, dtype=np.float32).reshape(2, 2)


# Longer than what a message carries itself.
LONG = np.ones((20_000, 2), np.float32)


class _Parser(Parser):
    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, _options: RowOptions) -> None:
        self._word = b""

    def feed(self, data: bytes) -> Iterator[Run]:
        self._word += data
        return iter(())

    def close(self) -> Iterator[Run]:
        if self._word.startswith(b"say "):
            said = self._word.removeprefix(b"say ")
            for _ in range(2 if said.startswith(b"twice ") else 1):
                _line()._end.send(said.removeprefix(b"twice "))
            _line().hear(socket_messages.DATA)
            return
        yield Run(2, Matrix(ROWS))
        _do(self._word.decode())
        if self._word == b"busy":
            yield Run(len(LONG), Matrix(LONG))


def _do(word: str) -> None:
    if word == "segfault":
        ctypes.string_at(0)
    elif word == "nameless signal":
        os.kill(os.getpid(), 40)
        time.sleep(3600)
    elif word == "exit":
        os._exit(7)
    elif word == "loop":
        while True:
            pass
    elif word == "sleep":
        time.sleep(3600)
    elif word == "memory":
        np.ones(1 << 40, np.uint8)
    elif word == "raise":
        raise KeyError("nobody foresaw this")
    elif word == "no thread":
        told = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
        raise Poison("bad_format", f"it cannot be read: {told}") from pa.ArrowException(told)
    elif word == "chatter":
        for number in range(100):
            logging.getLogger("chatter").error("%d %s", number, LONG_TEXT)
        raise Poison("bad_format", LONG_TEXT)
    elif word == "busy":
        _line()._end = _Busy()  # type: ignore[assignment]
    elif word.startswith("ask "):
        start, stop, times = map(int, word.split()[1:])
        line = _line()
        for need in [TAIL, *[Need(start, stop)] * times]:
            line.ask(need)
    elif word == "give end":
        _line().say(socket_messages.ENDED, [bytes((4 << 20) + 1)])
    elif word.startswith("end "):
        end = msgspec.msgpack.encode(ENDS[word.removeprefix("end ")])
        _line().say(socket_messages.ENDED, [end])
    elif word == "first thread ends":
        threading.Thread(target=_go_on, args=(_line(),)).start()
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit
    elif word == "scattered memory":
        _scatter()
    elif word == "close end":
        os.close(_line()._end.fileno())
        time.sleep(3600)
    elif word.startswith("give "):
        _line().say(socket_messages.ROWS, packed([GIVEN[word.removeprefix("give ")]]))
    elif word.startswith("call "):
        ctypes.CDLL(None).syscall(int(word.removeprefix("call ")), 0, 0, 0, 0, 0, 0)
    elif word.startswith("try "):
        raise Poison("bad_format", _tried(word.removeprefix("try ")))


# What a decoder must not give for an object whose rows are numbers, and all of them wanted.
GIVEN = {
    "texts": Run(1, JsonRows.of([b"1"])),
    "opaque": Run(1, BytesRows.of([b"1"])),
    "nothing": Run(1, None),
    "columns": Run(2, Matrix(ROWS), kept=Kept(JsonRows.of([b"{}", b"{}"]), None)),
    "much": Run(1, Matrix(np.zeros((1, 17 << 20), np.float32))),  # zeros take no memory
    "times": Run(2, Matrix(ROWS), kept=Kept(None, np.zeros(2, "<i8"))),
}


LONG_TEXT = "x" * (socket_messages.MOST_CHARS + 1)
SCATTERED = 10_000
# What a decoder must not say at the end of an object.
ENDS = {
    "notes": End([Note(40, "x")] * 21),
    "text": End([Note(40, LONG_TEXT)]),
    "about": End([Note(40, "x", LONG_TEXT)]),
    "texts": End([Note(40, LONG_TEXT[1:]), Note(40, "x")]),
    "message": End([], "bad_format", LONG_TEXT, "trace"),
    "trace": End([], "bad_format", "x", LONG_TEXT),
    "libraries": End([], libraries=["x"] * 21),
}


def _go_on(line: _Line) -> None:
    line.tell(socket_messages.ENDED, [msgspec.msgpack.encode(End([]))])
    line.hear(socket_messages.TASK)


def _line() -> _Line:
    """The decoder's end of its socket, as code finds it that has taken the decoder over."""
    frame = sys._getframe()
    while frame.f_back is not None and "line" not in frame.f_locals:
        frame = frame.f_back
    line: _Line = frame.f_locals["line"]
    return line


class _Busy:
    """The decoder's end of its socket, when the system has no memory for a message."""

    def fileno(self) -> int:
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))


def _tried(what: str) -> str:
    try:
        if what == "socket":
            socket.socket()
        elif what == "write":
            Path("/tmp/written-by-a-decoder").write_text("x")
        elif what == "program":
            subprocess.run(["true"], check=True)
        elif what == "fork" and not os.fork():
            os._exit(0)
        elif what == "signal":
            _called("tgkill", os.getppid(), os.getppid(), 0)
        elif what == "signal by a pipe":
            fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())
        elif what == "limits":
            resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))
        elif what == "own limits":
            return str(resource.prlimit(0, resource.RLIMIT_CORE))
        elif what == "capabilities":  # capget(2): of this process, effective and permitted first
            held = ctypes.create_string_buffer(24)
            head = struct.pack("=Ii", 0x20080522, 0)
            _checked(ctypes.CDLL(None, use_errno=True).capget(head, held))
            return f"{struct.unpack('=6I', held.raw)}"
        elif what == "outlive":
            _checked(ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0))
        elif what == "process":
            _process(0x100 | 17)  # CLONE_VM | SIGCHLD
        elif what == "process of a thread's flags":
            _process(0x100 | 0x800 | 0x10000 | 0x10000000)  # with CLONE_NEWUSER
        elif what == "thread with files of its own":
            _process(0x100 | 0x800 | 0x10000)
        elif what == "files of its own":
            _called("close_range", 63, 63, 2)  # CLOSE_RANGE_UNSHARE
        elif what == "signal by a request":
            fcntl.ioctl(os.pipe()[0], 0x8901, struct.pack("i", os.getppid()))  # FIOSETOWN
        elif what == "descriptor":
            socket.send_fds(_line()._end, [b"x"], [0])
        elif what == "take the outbox from under its reader":
            _line()._outbox.empty()
        elif what == "watch":
            epoll()
        elif what == "descriptor from where one was":
            os.dup2(_line()._end.fileno(), HANDING_OVER)
        elif what == "memory as a file":
            os.memfd_create("rows")
        elif what == "memory that is shared":
            mmap.mmap(-1, 4_096)
        elif what == "memory of huge pages":
            mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
        elif what == "signals in a queue":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
            _called("tgkill", os.getpid(), threading.get_native_id(), signal.SIGRTMIN)
        elif what == "its own signal":
            os.kill(os.getpid(), 0)
        elif what == "name service":
            return str(len(pwd.getpwall()))
        elif what == "terminal":
            return str(os.isatty(os.open("/dev/null", os.O_RDONLY)))
        elif what == "inbox":
            _cut_inbox()
        elif what == "thread":
            thread = threading.Thread(target=_tried, args=("socket",))
            thread.start()
            thread.join()
        elif what == "threads":
            return str(_threads(MOST_THREADS - 1))
        elif what == "stay with threads":
            for _ in range(MOST_THREADS - 1):
                threading.Thread(target=signal.pause, daemon=True).start()
        elif what == "more threads":
            return str(_threads(1_000))
        elif what == "compute when idle":
            threading.Thread(target=_compute, daemon=True).start()
        elif what == "foreign file":
            return Path("/etc/passwd").read_text()
        elif what == "folder":
            return str(next(Path("/").iterdir()))
        elif what == "memory of others":
            return Path(f"/proc/{os.getppid()}/maps").read_text()
        elif what == "secrets of others":
            return Path(f"/proc/{os.getppid()}/environ").read_text()
        elif what == "newer open":
            _called("openat2", -100, b"/tmp/written-by-a-decoder", 0, 0)
        elif what == "secrets":
            return str("AWS_SECRET_ACCESS_KEY" in os.environ)
    except OSError as error:
        return f"{type(error).__name__} {error.strerror}"
    return "done"


def _threads(number: int) -> int:
    """How many threads it can have at a time."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(number)]
    for thread in threads:
        thread.start()
    end.set()
    for thread in threads:
        thread.join()
    return len(threads)


def _compute() -> None:
    while True:
        pass


def _cut_inbox() -> None:
    """The worker would write where no memory is left."""
    for number in range(64):
        with suppress(OSError):
            os.ftruncate(number, 0)


def _scatter() -> None:
    """Reads pages of zeros that are far apart: the kernel holds two pages for each of them, and
    none is the process' own.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    for number in range(SCATTERED):
        place = ctypes.c_void_p((1 << 44) + (number << 30))
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
        page = libc.mmap(place, ctypes.c_size_t(4_096), mmap.PROT_READ, flags, -1, ctypes.c_long(0))
        ctypes.string_at(page, 1)


def _process(flags: int) -> None:
    """A process that shares our memory, which a thread does, too."""
    libc = ctypes.CDLL(None, use_errno=True)
    stack = ctypes.create_string_buffer(1 << 16)
    top = ctypes.c_void_p((ctypes.addressof(stack) + (1 << 16)) & ~15)
    pause = ctypes.cast(libc.pause, ctypes.c_void_p)
    _checked(libc.clone(pause, top, flags, None))


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# Calls that are numbered alike on all machines.
NEWER = {"openat2": 437, "close_range": 436}


def _called(name: str, *values: int | bytes) -> None:
    numbers = {"x86_64": {"tgkill": 234}, "aarch64": {"tgkill": 131}}[platform.machine()]
    ctypes.set_errno(0)
    if ctypes.CDLL(None, use_errno=True).syscall((numbers | NEWER)[name], *values) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


DEADLY = Format("deadly", makes("matrix", "json", "bytes"), _Parser, extensions=(".deadly",))

ENTRY_POINTS = f"""[penstock.formats]
deadly = {__name__}:DEADLY
"""


def forget_plugins() -> None:
    """Formats are looked for again, as in a new process."""
    for known in (plugins, formats, known_formats, _claimed):
        known.cache_clear()


def plant(folder: Path) -> None:
    """Install it, for processes that find the folder on their path."""
    info = folder / "deadly-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
