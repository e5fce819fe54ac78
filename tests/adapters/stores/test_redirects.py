"""A store that leads elsewhere: no client of any cloud follows it, whatever it asks, and no secret
leaves for another host.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from penstock import config
from penstock.adapters.memory import MemoryObjects
from penstock.adapters.result_stores.results import ObstoreResults
from penstock.adapters.s3.buckets import s3_buckets
from penstock.adapters.s3.obstore_client import ByObstore, cloud_translated, translated
from penstock.adapters.stores.choice import open_objects
from penstock.adapters.stores.clouds import CloudObjects, cloud_buckets, hosts_of
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.ports import Location, Objects, ResultStore
from tests.support.secured import Authority

STATUSES = (301, 302, 303, 307, 308)
KEYS: dict[str, object] = {"key": "AK", "secret": "c2VjcmV0", "token": "SESSIONTOKEN"}
# By the scheme, and for S3 by the client.
STORES: dict[str, dict[str, object]] = {
    "s3 obstore": KEYS,
    "s3 s3fs": {**KEYS, "client": "s3fs"},
    "s3 anon": {"anon": True},
    "gs": {"token": "SESSIONTOKEN"},
    "az": {"account": "acme", "token": "sv=1&sig=SESSIONTOKEN"},
}


Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Servers(NamedTuple):
    """One that leads to the other, under another name of this machine, and what that was asked."""

    url: str
    asked: list[bytes]
    led: list[bytes]


@asynccontextmanager
async def servers(
    status: int, to: str = "localhost", secure: ssl.SSLContext | None = None
) -> AsyncIterator[Servers]:
    """With `secure` the one that leads speaks https, and leads to http."""
    asked: list[bytes] = []
    led: list[bytes] = []

    def other(head: bytes) -> bytes:
        asked.append(head)
        fields = b'ETag: "e"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT'
        return b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: 4\r\n\r\n1,2\n" % fields

    def leading(head: bytes) -> bytes:
        led.append(head)
        where = f"Location: http://{to}:{port}/latest/meta-data/"
        return f"HTTP/1.1 {status} Led\r\n{where}\r\nContent-Length: 0\r\n\r\n".encode()

    clients: list[asyncio.Task[None]] = []

    def answering(answer: Callable[[bytes], bytes]) -> Connected:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            client = asyncio.create_task(_answer(reader, writer, answer))
            # However it ends: one that came late may not even begin.
            client.add_done_callback(lambda _: writer.transport.abort())
            clients.append(client)

        return connected

    one = await asyncio.start_server(answering(other), to, 0)
    port = one.sockets[0].getsockname()[1]
    two = await asyncio.start_server(answering(leading), "127.0.0.1", 0, ssl=secure)
    async with one, two:
        scheme = "http" if secure is None else "https"
        yield Servers(f"{scheme}://127.0.0.1:{two.sockets[0].getsockname()[1]}", asked, led)
        one.close()
        two.close()
        for _ in range(5):  # what was accepted at the last moment is connected by then
            await asyncio.sleep(0)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[bytes], bytes]
) -> None:
    """To the end of the connection, which ends with its client or its test."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            if length := re.search(rb"content-length: (\d+)", head, re.IGNORECASE):
                await reader.readexactly(int(length[1]))
            writer.write(answer(head))


def configured(kind: str, url: str) -> config.Config:
    scheme = kind.partition(" ")[0]
    store = config.Store(url=f"{scheme}://bucket", endpoint_url=url, **STORES[kind])  # type: ignore[arg-type]
    return config.Config(stores={"led": store})


async def _opened(objects: Objects) -> None:
    await (await objects.open(Location("bucket", "k.csv", store="led"))).aclose()


async def _odd(objects: Objects) -> None:
    await objects.open(Location("bucket", "a//k.csv", store="led"))


async def _part(objects: Objects) -> None:
    await objects.part(Location("bucket", "k.csv", store="led"), 0, 2)


async def _tail(objects: Objects) -> None:
    await objects.part(Location("bucket", "k.csv", store="led"), -2)


async def _listed(objects: Objects) -> None:
    async for _ in objects.list("bucket", "*", "led"):
        pass


READS: list[Callable[[Objects], Awaitable[None]]] = [_opened, _odd, _part, _tail, _listed]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("status", STATUSES)
async def test_no_read_is_led_to_another_host(kind: str, status: int) -> None:
    async with servers(status) as found:
        objects = open_objects(configured(kind, found.url))
        for read in READS:
            with pytest.raises(Poison) as caught:
                await read(objects)
            assert caught.value.code in ("forbidden", "not_found"), read.__name__
        await objects.aclose()
        assert found.led
        assert found.asked == []


def results_of(kind: str, url: str) -> ResultStore:
    """Without the patience of a worker, which tries again for two minutes what does not answer."""
    store, scheme = configured(kind, url).stores["led"], kind.partition(" ")[0]
    if scheme == "s3":
        return ObstoreResults(s3_buckets(store, "stores.led", 5.0), None, translated, "led")
    reach = cloud_buckets(store, scheme, "stores.led", 5.0)
    return ObstoreResults(reach, None, cloud_translated, "led")


@pytest.mark.parametrize("kind", STORES)
async def test_no_read_is_led_from_https_to_http(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(*authority.sign("server"))
    async with servers(302, "127.0.0.1", secure) as found:
        cfg = configured(kind, found.url)
        trusting = replace(cfg.stores["led"], ssl_cafile=str(authority.cafile))
        objects = open_objects(replace(cfg, stores={"led": trusting}))
        with pytest.raises(Poison, match="leads to another address") as caught:
            await objects.open(Location("bucket", "k.csv", store="led"))
        assert caught.value.code == "forbidden"
        await objects.aclose()
        assert found.led
        assert found.asked == []


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("nbytes", [1_000, 9 << 20])
async def test_no_result_is_led_to_another_host(kind: str, status: int, nbytes: int) -> None:
    async with servers(status) as found:
        results = results_of(kind, found.url)
        upload = results.begin(Location("bucket", "k.jsonl"))

        async def write() -> None:
            await upload.write(b"x" * nbytes)
            await upload.complete()

        with pytest.raises(Fatal, match="leads to another address") as caught:
            await write()
        assert caught.value.exit_code == EXIT_USAGE
        await upload.abort()
        await results.aclose()
        assert found.led
        assert found.asked == []


async def test_a_bucket_of_another_region_is_left_to_the_client_that_finds_it() -> None:
    exact = MemoryObjects()
    exact.put("bucket", "0", b"1,2\n")
    settings = config.Objects(endpoint_url="", key="AK", secret="secret")
    async with servers(301) as found:
        access = replace(settings, endpoint_url=found.url)
        objects = ByObstore(
            lambda: s3_buckets(access, "objects", 5.0), exact, translated, 5.0, has_regions=True
        )
        for _ in range(3):
            body = await objects.open(Location("bucket", "0"))
            assert b"".join([chunk async for chunk in body]) == b"1,2\n"
        assert (await objects.part(Location("bucket", "0"), 0, 2)).data == b"1,"
        assert len(found.led) == 1
        assert found.asked == []


def test_who_gives_tokens_is_asked_only_where_no_credentials_are_configured() -> None:
    own = "https://storage.googleapis.com"
    assert hosts_of(config.Store(url="gs://b", anon=True), "gs") == [own]
    hosts = hosts_of(config.Store(url="gs://b"), "gs")
    assert hosts[0] == own
    assert "http://169.254.169.254" in hosts


async def test_a_key_file_that_is_no_utf8_is_a_fatal_error(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_bytes(b'{"type":"service_account","token_uri":"http://\xff"}')
    store = CloudObjects(config.Store(url="gs://", key_file=str(file)), "gs", section="stores.led")
    with pytest.raises(Fatal, match=r"stores\.led.*service account file"):
        await store.open(Location("bucket", "k.csv", store="led"))
