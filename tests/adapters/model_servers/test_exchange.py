"""Requests over connections of our own: kept, stale, slow, closed, encrypted."""

import asyncio
import math
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from penstock.adapters.http.connections import PIECE_BYTES, SILENCE_S
from penstock.adapters.model_servers.http_calls import JSON_LENGTH, Exchange, NotConnected, Request
from penstock.errors import Fatal
from tests.support.forgetful_way import way_to
from tests.support.secured import Authority

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MIB = 1 << 20
MATRIX = {"Content-Type": "application/octet-stream", "X-Rows": "1"}

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("body", "headers", "begin"),
    [
        (b"[[1,2]]", {"Content-Type": "application/json"}, "[[1,2]]"),
        ("ü".encode() * 150, {}, "ü" * 100),
        (struct.pack("<3f", 0.1, -2, 1e9), MATRIX, "float32 0.1 -2 1e+09"),
        (b"\xff\xd8\xff\xe0", {"Content-Type": "image/jpeg"}, "ff d8 ff e0"),
        (b'{"inputs":[]}\0\0\x80?', {JSON_LENGTH: "13"}, '{"inputs":[]}'),
        (b"\x04\0\0\0text", {"X-Rows": "1"}, "04 00 00 00 74 65 78 74"),
    ],
)
def test_a_request_is_shown_as_numbers_as_text_or_as_bytes(
    body: bytes, headers: dict[str, str], begin: str
) -> None:
    assert Request(body, headers).shown(1).partition("bytes: ")[2] == begin


class Server:
    """Counts connections; each is served by what the test says."""

    def __init__(self, serve: Serve) -> None:
        self.connections = 0
        self.port = 0
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self, secure: ssl.SSLContext | None = None) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self.take, "127.0.0.1", 0, ssl=secure)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def body_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.partition(b"Content-Length: ")[2].partition(b"\r")[0]
    return await reader.readexactly(int(length))


async def always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await body_of(reader)
        writer.write(OK)


async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hangs up under the second request."""
    await body_of(reader)
    writer.write(OK)
    await reader.read(1)


async def ask(exchange: Exchange, body: bytes = b"1", timeout_s: float = 60.0) -> bytes:
    answer = await exchange.ask(HEAD % len(body), body, timeout_s)
    return answer.body


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with Server(always).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        for _ in range(5):
            assert await ask(exchange) == b"ok"
        assert server.connections == 1
        await asyncio.gather(*[ask(exchange) for _ in range(3)])
        assert server.connections == 3
        await exchange.aclose()


async def test_a_stale_connection_costs_no_request() -> None:
    async with Server(once).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1, rested_s=0.0)
        assert [await ask(exchange) for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 3
        await exchange.aclose()


async def test_a_connection_lost_right_after_its_last_answer_was_not_stale() -> None:
    async with Server(once).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1, rested_s=math.inf)
        await ask(exchange)
        with pytest.raises(ConnectionError):
            await ask(exchange)
        assert server.connections == 1
        await exchange.aclose()


async def test_a_request_that_was_answered_in_part_is_not_repeated() -> None:
    async def in_part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(reader)
        writer.write(OK)
        await body_of(reader)
        writer.write(OK[:20])
        await writer.drain()

    async with Server(in_part).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1, rested_s=0.0)
        await ask(exchange)
        with pytest.raises(ConnectionError):
            await ask(exchange)
        assert server.connections == 1
        await exchange.aclose()


async def test_a_server_that_went_away_under_a_request_gave_no_answer() -> None:
    """And not: it was away. Its rows may be why."""
    async with Server(once).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1, rested_s=0.0)
        await ask(exchange)
    with pytest.raises(ConnectionError):
        await ask(exchange)
    with pytest.raises(NotConnected):
        await ask(exchange)
    await exchange.aclose()


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    more, ended = asyncio.Event(), asyncio.Event()

    async def talks_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(reader)
        writer.write(OK)
        await more.wait()
        if not ended.is_set():
            writer.write(OK)
        with suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with Server(talks_on).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        await ask(exchange)
        more.set()
        await ended.wait()
        await ask(exchange)
        assert server.connections == 2
        await exchange.aclose()


async def test_a_large_request_arrives_whole_at_a_server_that_reads_slowly() -> None:
    body = bytes(range(256)) * (3 * PIECE_BYTES // 256 + 1) * 8
    got = bytearray()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while len(got) < len(body):
            got.extend(await reader.read(100_000))
            await asyncio.sleep(0)
        writer.write(OK)

    async with Server(slowly).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        assert await ask(exchange, body) == b"ok"
        await exchange.aclose()
    assert got == body


async def test_an_answer_before_the_end_of_its_request_is_one_and_the_rest_is_not_sent() -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nenough"[:-1])
        await writer.drain()
        await reader.read()

    async with Server(at_once).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        assert await ask(exchange, b"x" * (64 * MIB)) == b"enoug"
        await exchange.aclose()


async def test_time_runs_out_once_for_all_of_an_answer() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(reader)
        writer.write(OK)
        await body_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.001)

    async with Server(drip).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        # A busy machine may need longer than the short time to connect.
        await ask(exchange)
        with pytest.raises(TimeoutError):
            await ask(exchange, timeout_s=0.05)
        await exchange.aclose()


async def test_a_shorter_time_counts_on_a_connection_that_was_given_a_longer_one() -> None:
    async def first_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(reader)
        writer.write(OK)
        await reader.read()
        await asyncio.Event().wait()

    async with Server(first_only).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        await ask(exchange, timeout_s=600.0)
        with pytest.raises(TimeoutError):
            await ask(exchange, timeout_s=0.05)
        await exchange.aclose()


async def test_closing_closes_all_and_the_next_request_connects_again() -> None:
    async with Server(always).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, spread=1)
        await asyncio.gather(*[ask(exchange) for _ in range(3)])
        await exchange.aclose()
        assert await ask(exchange) == b"ok"
        assert server.connections == 4
        await exchange.aclose()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def served_by(authority: Authority) -> ssl.SSLContext:
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(*authority.sign("model"))
    return secure


async def test_over_tls_large_requests_go_to_a_server_that_is_trusted(
    authority: Authority,
) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.cafile))
    async with Server(always).running(served_by(authority)) as server:
        exchange = Exchange("127.0.0.1", server.port, trusting, spread=1)
        for body in (b"1", b"x" * (4 * MIB), b"1"):
            assert await ask(exchange, body) == b"ok"
        assert server.connections == 1
        await exchange.aclose()


async def test_a_server_whose_certificate_is_not_trusted_is_a_setting_to_mend(
    authority: Authority, tmp_path: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(Authority(tmp_path).cafile))
    async with Server(always).running(served_by(authority)) as server:
        exchange = Exchange("127.0.0.1", server.port, trusting, spread=1)
        with pytest.raises(Fatal, match=r"model\.ssl_cafile"):
            await ask(exchange)
        await exchange.aclose()


async def test_a_request_over_a_forgotten_connection_goes_over_a_new_one() -> None:
    now_s = asyncio.get_running_loop().time
    async with Server(always).running() as server, way_to(f"127.0.0.1:{server.port}") as way:
        exchange = Exchange("127.0.0.1", way.port, None, spread=4)
        await asyncio.gather(*[ask(exchange) for _ in range(4)])
        assert way.forget() == 4
        began_s = now_s()
        assert await ask(exchange) == b"ok"
        assert SILENCE_S <= now_s() - began_s < 2 * SILENCE_S
        for _ in range(4):
            assert await ask(exchange) == b"ok"
        assert now_s() - began_s < 2 * SILENCE_S, "each forgotten one was waited for"
        await exchange.aclose()


async def test_large_answers_at_the_same_time_are_bounded_together() -> None:
    """The first is read on, the others wait in their sockets until it is read."""
    pieces = 128

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (pieces * len(blank)))
        for _ in range(pieces):
            writer.write(blank)
            await writer.drain()

    async def read() -> int:
        return len((await exchange.ask(HEAD % 0, b"", 60.0)).body)

    blank = b" " * (MIB // 16)
    async with Server(large).running() as server:
        exchange = Exchange("127.0.0.1", server.port, None, together_bytes=8 * MIB)
        tracemalloc.start()
        sizes = await asyncio.gather(*(read() for _ in range(16)))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await exchange.aclose()
    assert sizes == [8 * MIB] * 16
    # What is held, the one that is read, one that is joined, and a piece of each at both ends.
    assert peak_bytes < 48 * MIB
