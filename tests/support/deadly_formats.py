"""A format of a user's package that does to its process what the object says."""

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from consumers.core.payload import Matrix
from consumers.errors import Poison
from consumers.formats.base import RowOptions, Run
from consumers.formats.format import Format, makes
from consumers.formats.source import Source, Wanted

ROWS = np.arange(4, dtype=np.float32).reshape(2, 2)


def _read(source: Source, _options: RowOptions, _wanted: Wanted) -> Iterator[Run]:
    word = b"".join(source.chunks()).decode()
    yield Run(2, Matrix(ROWS))
    if word == "segfault":
        ctypes.string_at(0)
    elif word == "exit":
        os._exit(7)
    elif word == "loop":
        while True:
            time.sleep(0)
    elif word == "sleep":
        time.sleep(3600)
    elif word == "memory":
        np.ones(1 << 40, np.uint8)
    elif word == "raise":
        raise KeyError("nobody foresaw this")
    elif word.startswith("try "):
        raise Poison("bad_format", _tried(word.removeprefix("try ")))


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
        elif what == "secrets":
            return str("AWS_SECRET_ACCESS_KEY" in os.environ)
    except OSError as error:
        return type(error).__name__
    return "done"


DEADLY = Format("deadly", makes("matrix"), ranged=_read, is_streamed=True, extensions=(".deadly",))

ENTRY_POINTS = f"""[penstock.formats]
deadly = {__name__}:DEADLY
"""


def plant(folder: Path) -> None:
    """Install it, for processes that find the folder on their path."""
    info = folder / "deadly-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
