"""The worker's side of the zygote: starts that process, asks it for decoders, has it kill them.

Rule: if the zygote ends, its decoders end with it, and the pool starts another zygote when it next
needs a decoder.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.decoders.decoder_process import (
    EXITED,
    FORK,
    FORKED,
    KILL,
    MESSAGE_BYTES,
    REFUSED,
)
from penstock.decoders.socket_messages import new_boxes
from penstock.errors import Transient

# What starts it; behind these words comes the number of its socket.
COMMAND: Final = (sys.executable, "-P", "-m", "penstock.decoders.decoder_process")
# A decoder must not see secrets. So it gets only these environment variables, which Python and
# libraries need.
_ENVIRON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
# There are as many decoders as cores, so libraries get only one thread in each decoder.
_SET: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}


# A process that was killed, or whose socket was closed, ends at once, unless it waits for a device
# or a debugger holds it. The worker does not wait longer for it.
KILLED_S: Final = 5.0


class Exit(NamedTuple):
    """The end of a decoder. `code`: its exit code; a negative number names the signal that ended
    it. `call`: the number of the system call that it was ended for, if that is known.
    """

    code: int
    call: int | None = None


class Fork:
    """A decoder that is being made. `number`: a future of its process id. `end` and `memory`: our
    end of its socket, and the memory of its boxes.
    """

    def __init__(self, end: socket.socket, memory: int) -> None:
        self.number: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.end = end
        self.memory = memory


class Zygote:
    """Make a `Zygote` on the event loop that will use it."""

    def __init__(self) -> None:
        self.is_alive = True
        self._forks: deque[Fork] = deque()
        self._ends: dict[int, asyncio.Future[Exit]] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
        environ |= {"PYTHONPATH": os.pathsep.join(_paths()), **_SET}
        try:
            self._process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise Transient(f"no process to decode objects in: {error}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._end = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)

    def fork(self, libraries: Iterable[str]) -> Fork:
        """Start a decoder that has these late libraries."""
        message = FORK + " ".join(libraries).encode()
        try:
            with ExitStack() as undo:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                undo.enter_context(ours)
                with theirs:
                    memory = new_boxes()
                    undo.callback(os.close, memory)
                    socket.send_fds(self._end, [message], [theirs.fileno(), memory])
                undo.pop_all()
        except OSError as error:
            raise Transient(f"no process to decode objects in: {error}") from error
        fork = Fork(ours, memory)
        self._forks.append(fork)
        return fork

    def ended(self, number: int) -> asyncio.Future[Exit]:
        """A future of the decoder's end. It raises `Transient` if the zygote ended before, and its
        decoders with it, whatever they had to decode.
        """
        return self._ends[number]

    def has_lost(self, fork: Fork) -> bool:
        """True if the decoder was made, and has ended since."""
        number = fork.number
        if not number.done():
            return False
        return number.exception() is not None or self._ends[number.result()].done()

    def discard(self, fork: Fork) -> None:
        """The decoder is not wanted. It ends, because its socket is closed."""
        number = fork.number
        if not number.cancel() and not number.cancelled() and number.exception() is None:
            self.drop(number.result())
        fork.end.close()
        os.close(fork.memory)

    def kill(self, number: int) -> None:
        if self.is_alive and not self._ends[number].done():
            try:
                self._end.send(KILL + b"%d" % number)
            except OSError:  # it has ended, or has not read for so long that no more fits
                self._gone()

    def drop(self, number: int) -> None:
        """End a decoder. Nobody will ask for its exit code."""
        self.kill(number)
        del self._ends[number]

    def close(self) -> None:
        """End the zygote, and all its decoders."""
        if self.is_alive:
            self._gone()

    def _hear(self) -> None:
        try:
            message = self._end.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._gone()
        elif message[:1] == FORKED:
            number = int(message[1:])
            self._ends[number] = asyncio.get_running_loop().create_future()
            fork = self._forks.popleft()
            if fork.number.cancelled():
                self.drop(number)
            else:
                fork.number.set_result(number)
        elif message[:1] == REFUSED:
            why = message[1:].decode(errors="replace")
            _fail(self._forks.popleft().number, f"no process to decode objects in: {why}")
        elif message[:1] == EXITED:
            number, code, call = map(int, message[1:].split())
            if number in self._ends:
                self._ends[number].set_result(Exit(code, call if call >= 0 else None))

    def _gone(self) -> None:
        self.is_alive = False
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        for awaited in [fork.number for fork in self._forks] + [*self._ends.values()]:
            _fail(awaited, "the process that starts decoders was ended")
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)


def _fail(awaited: asyncio.Future[Any], why: str) -> None:
    if not awaited.done():
        awaited.set_exception(Transient(why))
        awaited.exception()  # it may never be awaited


def _paths() -> list[str]:
    """Where decoders find libraries: not in the current folder if only `python -m` or an
    interactive Python has put it in the first place, because they may read what is there.
    """
    is_current = sys.path[:1] in ([""], [str(Path.cwd())])
    return sys.path[1:] if is_current and not sys.flags.safe_path else sys.path
