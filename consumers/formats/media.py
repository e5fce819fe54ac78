"""Recordings and videos, as the worker sees them: read here and there, decoded by a child process.

Rule: whatever an object does to the libraries that decode it, it does to a process of its own: one
that crashes, or says nothing for `SILENCE_S`, is ended and its object is `bad_format`. A child that
came to an end of its object, good or bad, is used again. Owner: the thread that reads one
object; idle children end with the worker.
"""

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Final, Literal

import msgspec

from consumers.core.payload import Form, Payload
from consumers.errors import EXIT_USAGE, Fatal, Poison, Transient
from consumers.formats.base import RowOptions, Run
from consumers.formats.media_wire import (
    DATA,
    DONE,
    FAILED,
    NEED,
    ROWS,
    TASK,
    Channel,
    Failure,
    HungUp,
    Task,
    batch_of,
    range_of,
)
from consumers.formats.opaque import BytesParser, opaque
from consumers.formats.push import Parser
from consumers.formats.rows import bad_row, too_long
from consumers.formats.source import Read, Source, Wanted

Kind = Literal["audio", "video"]

# A child asks for bytes or sends rows several times a second; it waits for none but us.
SILENCE_S: Final = 60.0
# Each takes 60 MB; to start one takes half a second.
MOST_IDLE: Final = 2
_CHILD: Final = "consumers.formats.media_child"
_LIBRARIES: Final[dict[Kind, tuple[str, ...]]] = {
    "audio": ("soundfile",),
    "video": ("av", "PIL"),
}
# A decoder of strangers' bytes gets no secrets; these are for Python and its libraries.
_ENVIRON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")


def need_media(format: str, form: Form) -> None:
    """Raises `Fatal` where the extra of this format is not installed."""
    is_decoded = format == "video" or (format == "audio" and form != "bytes")
    missing = _missing(format) if is_decoded else None
    if missing is not None:
        raise Fatal(missing, exit_code=EXIT_USAGE)


def _missing(kind: str) -> str | None:
    if all(find_spec(name) for name in _LIBRARIES["audio" if kind == "audio" else "video"]):
        return None
    return f"{kind} needs an extra: pip install 'penstock-stream[media]'"


class Child:
    """One process, and the socket to it. `is_idle`: it waits for an object. `is_used`: it decoded
    something before.
    """

    def __init__(self, module: str, silence_s: float) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(silence_s)
        environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
        environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                stdin=subprocess.PIPE,  # ends when we do, and the child with it
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise Transient(f"no process to decode media in: {error}") from error
        finally:
            theirs.close()
        self.channel = Channel(ours)
        self.is_idle = True
        self.is_used = False

    def end(self) -> int:
        """Its exit code, or the negative signal that ended it."""
        self.channel.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait()

    def exit_code(self) -> int:
        """Of a child that hung up: it is about to end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        return self.end()


class Children:
    """Lends them out. At most `MOST_IDLE` wait for the next object."""

    def __init__(self, module: str = _CHILD, silence_s: float = SILENCE_S) -> None:
        self._module = module
        self._silence_s = silence_s
        self._idle: list[Child] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self) -> Iterator[Child]:
        """Ended, unless it waits for an object again when the block is left."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or Child(self._module, self._silence_s)
        try:
            yield child
        finally:
            with self._lock:
                is_kept = child.is_idle and len(self._idle) < MOST_IDLE
                if is_kept:
                    child.is_used = True
                    self._idle.append(child)
            if not is_kept:
                child.end()

    def end(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()


_children = Children()
atexit.register(_children.end)


def reader(kind: Kind, children: Children = _children) -> Read:
    """Reads the objects of one kind."""

    def read(ranges: Source, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        if kind == "audio" and options.form == "bytes":
            yield _whole(ranges, options)
            return
        missing = _missing(kind)
        if missing is not None:
            raise Poison("bad_format", missing)
        task = Task(
            kind=kind,
            size=ranges.size,
            form=options.form,
            pixels=options.pixels,
            row_bytes=options.row_bytes,
            image=options.image,
            fps=options.fps,
            window_ms=options.window_ms,
            hop_ms=options.hop_ms or options.window_ms,
            skip_rows=_first_wanted(wanted),
        )
        with children.lent() as child:
            yield from _decoded(child, task, ranges)

    return read


def open_audio(options: RowOptions) -> Parser | None:
    """As a member of an archive: opaque, or not at all."""
    return BytesParser(options) if options.form == "bytes" else None


def _whole(ranges: Source, options: RowOptions) -> Run:
    """A recording for a model that takes recordings."""
    if ranges.size > options.row_bytes:
        return bad_row(too_long(options.row_bytes))
    return Run(1, opaque(ranges.read(0, ranges.size)))


def _first_wanted(wanted: Wanted) -> int:
    """The row from which on they are decoded into rows; before it they are only counted."""
    stop = 1
    while stop < 1 << 40 and not wanted(0, stop):
        stop *= 2
    first = 0
    while first + 1 < stop:
        middle = (first + stop) // 2
        first, stop = (first, middle) if wanted(0, middle) else (middle, stop)
    return stop - 1


def _decoded(child: Child, task: Task, ranges: Source) -> Iterator[Run]:
    try:
        child.is_idle = False
        child.channel.send(TASK, msgspec.json.encode(task))
        while True:
            letter, body = child.channel.receive()
            child.is_idle = letter in (DONE, FAILED)
            if letter == DONE:
                return
            if letter == NEED:
                child.channel.send(DATA, ranges.read(*range_of(body)))
            elif letter == ROWS:
                batch = batch_of(body)
                yield Run(batch.rows, _checked(batch.payload, task), since_ms=batch.times_ms)
            elif letter == FAILED:
                failure = msgspec.json.decode(body, type=Failure)
                raise Poison(failure.code, failure.message)
            else:
                raise ValueError(f"it said {letter!r}")
    except TimeoutError:
        raise Poison(
            "bad_format", f"the decoder of {task.kind} hangs on this object and was ended"
        ) from None
    except ValueError as error:
        if child.is_used:
            raise Transient(f"the decoder of {task.kind} was ended: {error}") from error
        raise Poison("bad_format", f"the decoder of {task.kind} says nonsense: {error}") from error
    except HungUp as error:
        code = child.exit_code()
        # Killed from outside, as for want of memory, or worn out by an object before this one.
        if code == -signal.SIGKILL or child.is_used:
            raise Transient(f"the decoder of {task.kind} was ended: {error}") from error
        raise Poison(
            "bad_format", f"the decoder of {task.kind} crashed on this object ({_end_of(code)})"
        ) from error


def _checked(payload: Payload | None, task: Task) -> Payload | None:
    if payload is not None and payload.nbytes // payload.rows > task.row_bytes + 64:
        raise Poison("too_large", f"{too_long(task.row_bytes)}; a smaller rows.image_size or fewer")
    return payload


def _end_of(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
