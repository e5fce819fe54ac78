"""The zygote: the process that decoders are forked from. It has the code of the decoders in memory,
but never an object.

Rule: to start Python with our libraries takes half a second; to fork takes a few milliseconds. The
zygote decodes no objects itself, so no object can damage it. The zygote ends with the worker, and
the decoders end with the zygote. Owner: `zygote_client`, which starts it.
"""

import gc
import os
import selectors
import socket
import sys
from typing import Final, NoReturn

from penstock.decoders import bounds, decoder_process
from penstock.decoders.socket_messages import MOST_BYTES
from penstock.process.without_pandas import without_pandas

FORK, KILL = b"F", b"K"  # to the zygote
FORKED, ENDED, UNFILTERED = b"P", b"X", b"U"  # from the zygote
_MESSAGE_BYTES: Final = 64


class _Zygote:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._decoders: dict[int, int] = {}  # process id: descriptor that is ready when it ends
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
            bounds.end_with_parent(zygote)
            self._waiting.close()
            for other in self._decoders.values():
                os.close(other)
            if not bounds.bound(MOST_BYTES):
                self._end.send(UNFILTERED)
            self._end.close()
            decoder_process.serve(socket.socket(fileno=line), memory)
            code = 0
        finally:
            os._exit(code)

    def _ended(self, number: int) -> None:
        told = self._decoders.pop(number)
        self._waiting.unregister(told)
        os.close(told)
        _, status = os.waitpid(number, 0)
        self._end.send(ENDED + b"%d %d" % (number, os.waitstatus_to_exitcode(status)))


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))
    without_pandas()
    # Otherwise the garbage collector would write to all objects, and the decoders would not share
    # the zygote's memory.
    gc.freeze()
    try:
        _Zygote(end).run()
    except OSError:
        return  # the worker is gone


if __name__ == "__main__":
    main()
