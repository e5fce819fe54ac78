"""Bad messages, one of each kind and each in its own stream, the codes that may answer them, and a
port in front of the store that breaks the transfer of the object `CUT`, always at the same byte.

Rule: bad messages must not hold up the good ones. The objects of bad messages lie under `poison/`,
so that the watch can tell their records from those of the run's rows. All bytes but the cut ones
pass the port unchanged in both directions, so that the store sees the Host header that the client
signed. Owner: the run.
"""

import asyncio
import gzip
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock.tools.simulation.announcements import tar

FOLDER = "poison/"
CUT = FOLDER + "cut-for-good.csv"
# This many rows are more than 8 MiB, so they come in chunks, and some rows are answered before the
# cut.
CUT_ROWS = 240_000
# The key of a message that is not a reference, whose answer names no object.
NO_OBJECT = "no reference"
_ROW = b",".join([b"0.5"] * 16) + b"\n"


class Poison(NamedTuple):
    """`key`: the key of its object, or `NO_OBJECT`. `codes`: the error codes by which it may be
    answered. Some of its rows may be answered by predictions.
    """

    key: str
    partition: int
    at_s: float
    codes: tuple[str, ...]


class Kind(NamedTuple):
    codes: tuple[str, ...]
    body: Callable[[], bytes] | None


def _damaged_gzip() -> bytes:
    return gzip.compress(_ROW * 2_000)[:-40] + b"\0" * 40


KINDS: Mapping[str, Kind] = {
    FOLDER + "missing.csv": Kind(("not_found",), None),
    # The bytes that are decompressed before the damage become rows, some good and some bad.
    FOLDER + "damaged.csv.gz": Kind(("bad_format", "bad_archive", "bad_row"), _damaged_gzip),
    FOLDER + "cut.tar": Kind(
        ("bad_archive", "bad_format"), lambda: tar([("a.csv", _ROW * 50)])[:2_000]
    ),
    FOLDER + "bomb.csv.gz": Kind(
        ("bad_archive", "too_large", "bad_format"), lambda: gzip.compress(b"\n" * (64 << 20))
    ),
    FOLDER + "words.csv": Kind(("bad_row",), lambda: _ROW * 5 + b"one,two\n" + _ROW * 5),
    FOLDER + "wide.csv": Kind(("model_rejected",), lambda: (_ROW[:-1] + b",1\n") * 5),
    CUT: Kind(("unavailable",), lambda: _ROW * CUT_ROWS),
    NO_OBJECT: Kind(("bad_reference",), None),
}


def make(dice: random.Random, partitions: int, until_s: float) -> tuple[Poison, ...]:
    """One of each kind, at a random time, in a random partition."""
    return tuple(
        Poison(key, dice.randrange(partitions), dice.uniform(0, until_s), kind.codes)
        for key, kind in KINDS.items()
    )


def message(poison: Poison, bucket: str) -> bytes:
    if poison.key == NO_OBJECT:
        return b'{"bucket": "here", '
    return msgspec.json.encode({"bucket": bucket, "key": poison.key, "stream": poison.key})


def objects() -> Iterator[tuple[str, bytes]]:
    """Key and body of each bad object that is to be stored."""
    for key, kind in KINDS.items():
        if kind.body is not None:
            yield key, kind.body()


CUT_AT = 9 << 20
CHUNK_BYTES = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-", re.IGNORECASE)
_Broken = (OSError, asyncio.IncompleteReadError)


@asynccontextmanager
async def cutting(url: str, key: str) -> AsyncIterator[str]:
    """The address of a port in front of the store at `url`. The port cuts the transfer of the
    object with this key.
    """
    cutter = _Cutter(url, key.encode())
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in cutter.tasks:
            task.cancel()
        await asyncio.gather(*cutter.tasks, return_exceptions=True)


class _Cutter:
    def __init__(self, url: str, key: bytes) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._url = urlsplit(url)
        self._key = key

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with suppress(*_Broken, asyncio.CancelledError):
                await self._pass(reader, writer)
        finally:
            self.tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on requests and answers concurrently, up to the request for the cut object."""
        there_reader, there = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                answers = tasks.create_task(_pump(there_reader, writer))
                with suppress(*_Broken):
                    head = await self._pass_requests(reader, there)
                    # The answer to this request is cut here, so nothing else may read it.
                    answers.cancel()
                    await asyncio.wait([answers])
                    await _cut(head, there_reader, writer)
                answers.cancel()
        finally:
            there.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter
    ) -> bytes:
        """Pass on requests, up to and including the first GET of the cut object. Returns the head
        of that GET. Raises `IncompleteReadError` when the client sends no more.
        """
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            there.write(head)
            if head.startswith(b"GET") and self._key in head.split(b"\r\n", 1)[0]:
                return head
            length = _LENGTH.search(head)
            await _copy(reader, there, int(length[1]) if length else 0)


async def _cut(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = _RANGE.search(head)
    writer.write(await reader.readuntil(b"\r\n\r\n"))
    await _copy(reader, writer, max(0, CUT_AT - (int(asked[1]) if asked else 0)))
    writer.write_eof()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nbytes: int) -> None:
    while nbytes:
        data = await reader.read(min(nbytes, CHUNK_BYTES))
        if not data:
            raise ConnectionResetError
        nbytes -= len(data)
        writer.write(data)
        await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on the store's answers until one side ends the connection, then close the client's
    connection.
    """
    with suppress(*_Broken):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
