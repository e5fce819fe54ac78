"""Which requests a page refuses, by their host name, and which slow clients it disconnects."""

import asyncio

import pytest
from aiohttp import web

from penstock import config
from penstock.ops.http_server import serving
from tests.support.waiting import DEADLINE_S

LOCAL = ["localhost", "LOCALHOST:8900", "127.0.0.1:1", "127.8.9.1", "[::1]:8900", "localhost."]
STRANGE = [
    "evil.example", "evil.example:8900", "localhost.evil.example", "127.0.0.1.evil.example", "",
    "x@localhost.evil", "[::1", "penstock",
]  # fmt: skip
NUMBERS = ["10.1.2.3:8900", "[2001:db8::1]:8900"]


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def asked(url: str, head: str, version: str = "1.1") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"GET / HTTP/{version}\r\n{head}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def statuses(settings: config.Http, hosts: list[str]) -> list[int]:
    async with serving(settings, {"/": hello}) as url:
        answers = [await asked(url, f"Host: {host}\r\n") for host in hosts]
    return [int(answer.split()[1]) for answer in answers]


async def test_on_this_machine_only_its_own_names_are_answered() -> None:
    settings = config.Http(port=0)
    assert await statuses(settings, LOCAL) == [200] * len(LOCAL)
    strange = [*STRANGE, *NUMBERS]
    assert await statuses(settings, strange) == [421] * len(strange)


async def test_where_all_may_come_an_address_as_a_number_is_answered_and_no_name() -> None:
    settings = config.Http(port=0, host="0.0.0.0")
    assert await statuses(settings, LOCAL + NUMBERS) == [200] * len(LOCAL + NUMBERS)
    assert await statuses(settings, STRANGE) == [421] * len(STRANGE)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_names_that_are_configured_are_answered(host: str) -> None:
    settings = config.Http(port=0, host=host, hosts=["penstock", "*.svc.cluster.local"])
    names = ["penstock:8900", "Penstock", "a.b.svc.cluster.local", "evil.example"]
    assert await statuses(settings, names) == [200, 200, 200, 421]


async def test_a_program_that_names_no_host_is_answered() -> None:
    async with serving(config.Http(port=0), {"/": hello}) as url:
        assert b" 200 " in await asked(url, "", "1.0")


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-"])
async def test_a_connection_that_brings_no_whole_request_is_closed(begun: bytes) -> None:
    async with serving(config.Http(port=0), {"/": hello}, request_s=0.2) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(begun)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        writer.close()


async def test_one_that_waits_for_its_answer_is_not() -> None:
    other_is_closed = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await other_is_closed.wait()
        return web.Response(text="late")

    async with serving(config.Http(port=0), {"/": slow}, request_s=0.2) as url:
        asking = asyncio.create_task(asked(url, "Host: localhost\r\n"))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        assert await reader.read() == b""
        writer.close()
        other_is_closed.set()
        assert (await asking).endswith(b"late")


async def test_who_takes_nothing_of_a_long_answer_is_let_go() -> None:
    ended = asyncio.Event()

    async def long(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(32 << 20))

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 20))
        finally:
            ended.set()

    pages = {"/": long, "/endless": endless}
    async with serving(config.Http(port=0), pages, request_s=0.2) as url:
        port = int(url.rpartition(":")[2])
        for path in pages:
            # It reads up to the stream's own limit, and then no more.
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await reader.readexactly(1)
            await asyncio.wait_for(_until_gone(writer), DEADLINE_S)
        await asyncio.wait_for(ended.wait(), DEADLINE_S)


async def _until_gone(writer: asyncio.StreamWriter) -> None:
    """Ended by the other side: what is written is refused then."""
    try:
        while True:
            writer.write(b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
    except ConnectionError:
        return


async def test_any_bytes_may_be_given_as_the_token_and_the_page_asks_for_it() -> None:
    settings = config.Http(port=0, token="gehe\N{LATIN SMALL LETTER I WITH DIAERESIS}m")
    pages = {"/": hello, "/healthz": hello, "/readyz": hello, "/metrics": hello}
    async with serving(settings, pages) as url:

        async def status(path: str, given: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
            writer.write(head + b"Authorization: Bearer " + given + b"\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer.split()[1]

        token = settings.token or ""
        given = (token.encode(), b"\xff\xfe\xc3", b"x")
        assert [await status("/metrics", one) for one in given] == [b"200", b"401", b"401"]
        assert [await status(path, b"x") for path in pages] == [b"200", b"200", b"200", b"401"]
