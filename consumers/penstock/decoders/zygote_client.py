"""The worker's side of the zygote: starts that process, and asks it for decoders.

Rule: if the zygote ends, its decoders end with it, and the pool starts another zygote when it next
needs a decoder. Owner: the pool; used from its event loop only.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from typing import Final

from penstock.decoders.decoder_process import EXITED, FORK, FORKED, KILL
from penstock.decoders.socket_messages import INBOX_BYTES
from penstock.errors import Transient

_MAIN: Final = "penstock.decoders.decoder_process"
# A decoder must not see secrets. So it gets only these environment variables, which Python and
# libraries need.
_ENVIRON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
# There are as many decoders as cores, so libraries get only one thread in each decoder.
_SET: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
_MESSAGE_BYTES: Final = 64


class Zygote:
    """Make a `Zygote` on the event loop that will use it."""

    def __init__(self) -> None:
        self.is_alive = True
        self._forks: deque[asyncio.Future[int]] = deque()
        self._ends: dict[int, asyncio.Future[int]] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
        environ |= {"PYTHONPATH": os.pathsep.join(sys.path), **_SET}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MAIN, str(theirs.fileno())],
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

    async def fork(self) -> tuple[int, socket.socket, int]:
        """Start a decoder. Returns its process id, our end of its socket, and the memory of its
        inbox.
        """
        forked = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = os.memfd_create("inbox", os.MFD_CLOEXEC)
        try:
            os.ftruncate(memory, INBOX_BYTES)
            socket.send_fds(self._end, [FORK], [theirs.fileno(), memory])
            self._forks.append(forked)
            number = await forked
        except BaseException as error:
            ours.close()
            os.close(memory)
            if isinstance(error, OSError):
                raise Transient(f"no process to decode objects in: {error}") from error
            raise
        finally:
            theirs.close()
        return number, ours, memory

    def ended(self, number: int) -> asyncio.Future[int]:
        """A future of the decoder's exit code. A negative number names the signal that ended the
        decoder.
        """
        return self._ends[number]

    def kill(self, number: int) -> None:
        if self.is_alive and not self._ends[number].done():
            self._end.send(KILL + b"%d" % number)

    def drop(self, number: int) -> None:
        """End a decoder. Nobody will ask for its exit code."""
        self.kill(number)
        del self._ends[number]

    def close(self) -> None:
        """End the zygote, and all its decoders."""
        if self.is_alive:
            self._gone()
        self._process.kill()
        self._process.wait()

    def _hear(self) -> None:
        try:
            message = self._end.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._gone()
        elif message[:1] == FORKED:
            number = int(message[1:])
            self._ends[number] = asyncio.get_running_loop().create_future()
            forked = self._forks.popleft()
            if forked.cancelled():
                self.drop(number)
            else:
                forked.set_result(number)
        elif message[:1] == EXITED:
            number, code = map(int, message[1:].split())
            if number in self._ends:
                self._ends[number].set_result(code)

    def _gone(self) -> None:
        self.is_alive = False
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        for forked in self._forks:
            if not forked.done():
                forked.set_exception(Transient("the process that starts decoders was ended"))
        for ended in self._ends.values():
            if not ended.done():
                ended.set_result(-signal.SIGKILL)
