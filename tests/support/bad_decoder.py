"""A child that decodes nothing: it does to its worker what the object says.

Rule: the first bytes of the object are a word: `crash`, `hang`, `killed`, `nonsense` or `rows`,
which it makes after `crash` in the object before it was survived.
"""

import os
import signal
import socket
import sys
import time

from consumers.formats.media_wire import (
    DATA,
    DONE,
    NEED,
    ROWS,
    Channel,
    packed_range,
)
from consumers.process.parent import end_with_parent


def main() -> None:
    end_with_parent()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    while True:
        channel.receive()
        channel.send(NEED, packed_range(0, 8))
        letter, body = channel.receive()
        assert letter == DATA
        word = body.decode().strip()
        if word == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if word == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang":
            time.sleep(3600)
        if word == "nonsense":
            channel.send(ROWS, b"\xff" * 20)
        channel.send(DONE)


if __name__ == "__main__":
    main()
