"""A Python that has loaded what decoders need, and becomes a process that they are forked from
(`forks`).

Rule: it is started as such a process is, and has gone as far as to `decoder_process.main`. Owner:
`warm_start`, which starts it.
"""

import importlib
import os
import socket
import sys
from collections.abc import Sequence

from penstock.decoders import decoder_process
from tests.support.forks import Start, serve, settle

# Where Python finds modules that whoever starts it does not name.
_OWN_PATH = [one for one in sys.path if one not in os.environ["PYTHONPATH"].split(os.pathsep)]


def become(start: Start, fds: Sequence[int]) -> None:
    settle(start, fds)
    sys.path = [*start.environ["PYTHONPATH"].split(os.pathsep), *_OWN_PATH]
    importlib.invalidate_caches()
    decoder_process.main()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), become)
