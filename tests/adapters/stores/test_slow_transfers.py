"""Silence ends a transfer, its duration does not; what comes too slowly to be seen is read in small
pieces, and what is slower still is given up.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock.adapters.http.answer_reader import Answer, AnswerReader, wanting
from penstock.adapters.http.connections import Connection
from penstock.adapters.s3.s3fs_client import full_chunks
from penstock.adapters.stores.transfer import (
    SLOW_CHUNK_BYTES,
    SLOW_SILENCES,
    read_part,
    resuming,
)
from penstock.errors import Transient, Unreachable
from penstock.ports import Location
from penstock.tools.simulation.virtual_time import virtual_time

PLACE = Location("bucket", "key")
SILENCE_S = 30.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


class _Wire(asyncio.Transport):
    """Takes what is written; closed when the connection says so."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        return

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


async def asked(pieces: list[tuple[float, bytes]]) -> Answer:
    """One question to a connection that silence ends after 30 s, answered by pieces, each after so
    many seconds.
    """
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(_Wire())
    reader = AnswerReader(wanting(), 1000, 0)
    asked = connection.ask(b"GET", reader, silence_s=SILENCE_S, most_s=SLOW_SILENCES * SILENCE_S)
    question = asyncio.create_task(asked)
    for pause_s, piece in pieces:
        await asyncio.sleep(pause_s)
        if not question.done():
            connection.data_received(piece)
    return await question


@virtual_time
async def test_a_small_object_may_take_longer_than_the_longest_silence() -> None:
    pieces = [(9.0, b"x" * 10)] * 4
    answer = await asked([(1.0, HEAD % 40), *pieces])
    assert answer.body == b"x" * 40


@virtual_time
async def test_silence_in_the_middle_of_a_small_object_ends_it() -> None:
    with pytest.raises(TimeoutError):
        await asked([(1.0, HEAD % 40), (9.0, b"x"), (31.0, b"x" * 39)])


@virtual_time
async def test_a_small_object_that_takes_minutes_is_left_to_the_client_that_shows_progress() -> (
    None
):
    with pytest.raises(TimeoutError):
        await asked([(1.0, HEAD % 40), *[(20.0, b"x")] * 40])


def transfer(data: bytes, *, whole_s: float, piece_s: float) -> Any:
    """Comes in one piece after so many seconds, or in pieces of one byte."""

    async def read_from(offset: int, is_slow: bool) -> AsyncGenerator[bytes]:
        if not is_slow:
            await asyncio.sleep(whole_s)
            yield data[offset:]
            return
        for byte in data[offset:]:
            await asyncio.sleep(piece_s)
            yield bytes([byte])

    return read_from


async def received(read_from: Any, size: int) -> bytes:
    return b"".join([chunk async for chunk in resuming(size, read_from, PLACE, 60.0)])


@virtual_time
async def test_a_whole_body_that_takes_too_long_is_read_in_pieces() -> None:
    read_from = transfer(b"abcdef", whole_s=600.0, piece_s=50.0)
    assert await received(read_from, 6) == b"abcdef"


@virtual_time
async def test_pieces_that_take_too_long_are_given_up_at_once() -> None:
    with pytest.raises(Transient, match="in 60 s") as caught:
        await received(transfer(b"abcdef", whole_s=600.0, piece_s=61.0), 6)
    assert not isinstance(caught.value, Unreachable)
    assert asyncio.get_running_loop().time() == 120.0


@virtual_time
async def test_more_than_the_object_has_is_refused() -> None:
    with pytest.raises(Transient, match="more than its 3 bytes"):
        await received(transfer(b"abcdef", whole_s=0.0, piece_s=0.0), 3)


class _Drip:
    """A body of so many bytes that come one a second."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes

    async def read(self, _: int) -> bytes:
        if not self._left:
            return b""
        await asyncio.sleep(1)
        self._left -= 1
        return b"x"


@virtual_time
async def test_a_body_of_a_byte_now_and_then_is_slow_by_s3fs_too() -> None:
    assert await read_part(PLACE, 50, full_chunks(_Drip(50), SLOW_CHUNK_BYTES), 60.0) == b"x" * 50
    with pytest.raises(Transient, match="no chunk came in 60 s"):
        await read_part(PLACE, 5_000, full_chunks(_Drip(5_000), SLOW_CHUNK_BYTES), 60.0)
