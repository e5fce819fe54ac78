"""Connections of our own: how they are spread, how they end, and what a task that is cancelled
leaves behind.
"""

import asyncio
import gc
import socket
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.adapters.http.answer_reader import AnswerReader, wanting
from penstock.adapters.http.connections import (
    AGE_S,
    IDLE_S,
    LARGE_BYTES,
    SILENCE_S,
    SPREAD,
    AnswerRoom,
    Connection,
    Host,
)
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.forgetful_way import way_to


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server that hangs up as soon as it is called."""

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("turns", range(8))
async def test_a_connect_that_is_cancelled_leaves_no_socket_open(port: int, turns: int) -> None:
    host = Host("127.0.0.1", port, None)
    connecting = asyncio.create_task(host.connect(5.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait([connecting])
    if not connecting.cancelled():
        connecting.result().close()
    await host.aclose()
    del connecting
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gc.collect()
    ours = f"raddr=('127.0.0.1', {port})"
    assert [one for one in said if ours in str(one.message)] == []


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def reader() -> AnswerReader:
    return AnswerReader(wanting(), 1000, 0)


async def ask(host: Host) -> None:
    connection = host.take() or await host.connect(5.0)
    await connection.ask(b"GET / HTTP/1.1\r\n\r\n", reader(), most_s=5.0)
    host.give(connection)


class Service:
    """Counts the requests that come to each of its addresses."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked[writer.get_extra_info("sockname")[0]] += 1
                writer.write(OK)
        except (EOFError, ConnectionError):
            writer.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """On all addresses of this machine."""
    service = Service()
    server = await asyncio.start_server(service.serve, "0.0.0.0", 0)
    service.port = server.sockets[0].getsockname()[1]
    async with server:
        yield service


@pytest.fixture
def name_of_four(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name with four addresses, as a resolver gives it."""
    ask_system = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *args: Any, **options: Any) -> Any:
        if host != "many.example":
            return ask_system(host, port, *args, **options)
        kind = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        return [(*kind, (f"127.0.0.{n}", port)) for n in range(1, 5)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return "many.example"


async def test_a_name_with_four_addresses_is_asked_at_all_of_them(
    service: Service, name_of_four: str
) -> None:
    host = Host(name_of_four, service.port, None, often_s=IDLE_S)
    for _ in range(50):
        await asyncio.gather(*[ask(host) for _ in range(4)])
    assert len(service.asked) == 4
    assert all(0.8 <= asked / 50 <= 1.2 for asked in service.asked.values()), service.asked
    await host.aclose()


async def test_an_address_that_is_away_costs_no_request(
    name_of_four: str,
) -> None:
    service = Service()
    server = await asyncio.start_server(service.serve, ["127.0.0.1", "127.0.0.3"], 0)
    # The two sockets get different ports, so only the first address is there.
    service.port = server.sockets[0].getsockname()[1]
    async with server:
        host = Host(name_of_four, service.port, None)
        for _ in range(40):
            await ask(host)
        assert sum(service.asked.values()) == 40
        await host.aclose()


async def test_servers_behind_a_balancer_get_even_shares(service: Service) -> None:
    """Although only one request is under way at a time."""
    servers = [f"127.0.0.{n}:{service.port}" for n in range(1, 5)]
    async with way_to(*servers) as way:
        host = Host("127.0.0.1", way.port, None, often_s=IDLE_S)
        for _ in range(400):
            await ask(host)
        assert sum(way.began.values()) == SPREAD
        assert all(0.5 <= asked / 100 <= 1.5 for asked in service.asked.values()), service.asked
        assert len(service.asked) == 4
        await host.aclose()


async def test_the_sisters_of_a_dead_connection_are_not_used(service: Service) -> None:
    async with way_to(f"127.0.0.1:{service.port}") as way:
        host = Host("127.0.0.1", way.port, None, often_s=IDLE_S)
        for _ in range(SPREAD):
            await ask(host)
        assert way.forget() == SPREAD
        dead = host.take()
        assert dead is not None
        with pytest.raises(TimeoutError):
            await dead.ask(b"GET / HTTP/1.1\r\n\r\n", reader(), most_s=60.0, silence_s=0.1)
        host.condemn(dead)
        await ask(host)
        assert service.asked["127.0.0.1"] == SPREAD + 1
        await host.aclose()


@virtual_time
async def test_after_a_pause_unlike_those_of_late_connections_are_not_used_again() -> None:
    """They may all have died while work stood still, because those to another service had."""
    host = Host("127.0.0.1", 1, None)

    async def is_used_after(rest_s: float) -> bool:
        await asyncio.sleep(rest_s)
        connection = host.take()
        is_used = connection is not None
        if connection is None:
            connection = Connection(asyncio.get_running_loop())
            connection.connection_made(_Wire())
        await answered(connection)
        host.give(connection)
        return is_used

    await is_used_after(0.0)
    rests_s = [0.6, 0.6, SILENCE_S, 0.6, SILENCE_S, SILENCE_S, SILENCE_S * 1.9]
    used = [await is_used_after(rest_s) for rest_s in rests_s]
    assert used == [True, True, False, True, True, True, True]
    for _ in range(int(AGE_S)):  # what was a minute ago is forgotten
        await is_used_after(1.1)
    assert not await is_used_after(SILENCE_S)


class _Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: Any) -> None:
        return

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        return


async def answered(connection: Connection, after_s: float = 0.0, body_s: float = 0.0) -> None:
    asked = asyncio.create_task(connection.ask(b"GET", reader(), most_s=60.0))
    await asyncio.sleep(after_s)
    connection.data_received(OK[:-1])
    await asyncio.sleep(body_s)
    connection.data_received(OK[-1:])
    await asked


class Reading:
    """A request whose answer of so many bytes comes by hand."""

    def __init__(self, room: AnswerRoom, size: int) -> None:
        self.wire = _Wire()
        self._connection = Connection(asyncio.get_running_loop(), room)
        self._connection.connection_made(self.wire)
        asked = self._connection.ask(
            b"GET", AnswerReader(wanting(), size, 0), most_s=60.0, silence_s=SILENCE_S
        )
        self.asked = asyncio.create_task(asked)
        self._head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size

    async def take(self, nbytes: int) -> None:
        await asyncio.sleep(0)
        self._connection.data_received(self._head + bytes(nbytes))
        self._head = b""
        await asyncio.sleep(0)


SIZE = 4 * LARGE_BYTES


@virtual_time
async def test_beyond_their_room_only_the_first_of_large_answers_is_read() -> None:
    room = AnswerRoom(SIZE)
    first, second, third = every = [Reading(room, SIZE) for _ in range(3)]
    for reading in every:
        await reading.take(SIZE // 2)
    assert [reading.wire.is_read for reading in every] == [True, False, False]
    small = Reading(room, LARGE_BYTES // 2)
    await small.take(LARGE_BYTES // 4)
    assert small.wire.is_read
    small.asked.cancel()
    for _ in range(4):  # nobody takes our own pause for a server's silence
        await asyncio.sleep(SILENCE_S / 2)
        await first.take(SIZE // 8)
    assert len((await first.asked).body) == SIZE
    assert [reading.wire.is_read for reading in every] == [True, True, False]
    second.asked.cancel()
    await asyncio.wait([second.asked])
    assert third.wire.is_read, "whichever way the one before it ended"
    await third.take(SIZE // 2)
    assert len((await third.asked).body) == SIZE


@virtual_time
async def test_a_connection_that_waits_for_its_room_ends_by_its_time() -> None:
    room = AnswerRoom(0)
    first, second = [Reading(room, SIZE) for _ in range(2)]
    for reading in (first, second):
        await reading.take(SIZE // 2)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await second.asked
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(60.0)
    with pytest.raises(TimeoutError):
        await first.asked


@virtual_time
async def test_a_connection_ends_by_age_however_busy_it_is() -> None:
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(_Wire())
    ages = 0
    await answered(connection)
    while connection.is_fresh(connection.loop.time()):
        await asyncio.sleep(1)
        ages += 1
        await answered(connection)
    assert 2 / 3 * AGE_S <= ages <= 4 / 3 * AGE_S + 1


@virtual_time
async def test_a_connection_that_rested_is_not_used_again() -> None:
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(_Wire())
    await answered(connection)
    await asyncio.sleep(IDLE_S / 2)
    assert connection.is_fresh(connection.loop.time())
    await asyncio.sleep(IDLE_S / 2)
    assert not connection.is_fresh(connection.loop.time())


@virtual_time
async def test_a_slow_host_has_the_time_that_it_takes_for_as_long_as_it_is_slow() -> None:
    host, connection = Host("127.0.0.1", 1, None), Connection(asyncio.get_running_loop())
    connection.connection_made(_Wire())

    async def asked(after_s: float, body_s: float = 0.0) -> None:
        await answered(connection, after_s, body_s)
        host.give(connection)

    await asked(0.1, body_s=8.0)
    assert host.silence_s == SILENCE_S, "only the wait for its first byte is silence"
    await asked(6.0)
    await asked(0.1)
    assert host.silence_s > 4 * 5.9
    for _ in range(200):
        await asked(0.1)
    assert host.silence_s == SILENCE_S
    host.close()


async def test_the_kernel_looks_after_each_connection(service: Service) -> None:
    host = Host("127.0.0.1", service.port, None)
    connection = await host.connect(5.0)
    assert connection._transport is not None
    wire = connection._transport.get_extra_info("socket")
    assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        most_ms = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert 30_000 < most_ms < 40_000  # a call may take 30 s
    await host.aclose()
