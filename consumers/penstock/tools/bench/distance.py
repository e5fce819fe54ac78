"""Puts the services of a trial at a distance: a process that relays to each of them and makes what
the worker sends wait.

Rule: only the worker takes this way. Over HTTP a request waits before its service sees it, and the
answer passes at once: what a client sends after an answer begins is the next request. To Kafka,
whose requests overlap, everything waits for half of the distance in each direction, in its order;
the brokers' own addresses are replaced by those of the relay.
"""

import asyncio
import math
import os
import random
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.topics import brokers_of
from penstock.errors import usage
from penstock.tools.bench.child_processes import child, line, say, serve, stop

# How far the waits of a service spread: the deviation of the logarithm of a wait. With 0.4 one
# request in a hundred waits 2.5 x the median, which is what S3 shows within a region; servers of
# models, whose work is always the same, spread less.
STORE_SPREAD: Final = 0.4
MODEL_SPREAD: Final = 0.2
# How often the relay looks whether the bench is still there.
LOOK_S: Final = 1.0
# So many parts of a connection are on their way at once, about; clients have a handful.
_MOST_WAITING: Final = 1_000
# Requests whose answers name the brokers: Metadata, FindCoordinator, DescribeCluster
# (kafka.apache.org/protocol).
_NAMES_BROKERS: Final = frozenset({3, 10, 60})

# Cuts what was received into parts, and says how many seconds each of them waits.
Waits = Callable[[bytes], Iterable[tuple[bytes, float]]]


class Slow(NamedTuple):
    """This share of the store's requests waits for so long in place of the usual wait."""

    share: float = 0.0
    ms: float = 0.0


class Distance(Struct, frozen=True):
    """How long a request to each service waits: the median; 0: the service stays near."""

    store_ms: float = 0.0
    model_ms: float = 0.0
    kafka_ms: float = 0.0
    slow: Slow = Slow()

    def __bool__(self) -> bool:
        return bool(self.store_ms or self.model_ms or self.kafka_ms or self.slow.share)

    def __str__(self) -> str:
        waits = {"store": self.store_ms, "model": self.model_ms, "Kafka": self.kafka_ms}
        far = [f"{name} {ms:g} ms away" for name, ms in waits.items() if ms]
        if self.slow.share:
            far.append(f"{100 * self.slow.share:g} % of the reads take {self.slow.ms:g} ms")
        return ", ".join(far)


class FarAddress(Struct, frozen=True):
    """To one address of a service. `spread`: see `STORE_SPREAD`; without effect to Kafka. `begin`:
    the port where it begins; 0: any free one.
    """

    host: str
    port: int
    kind: Literal["http", "kafka"]
    wait_ms: float
    spread: float = 0.0
    slow: Slow = Slow()
    begin: int = 0


class Relayed(Struct, frozen=True):
    """For each way, in their order, the port where it begins."""

    ports: list[int]


class Far(NamedTuple):
    """The settings by which a worker takes the long way, each named as `SECTION__KEY`, and the
    process id of the relay by its name.
    """

    settings: Mapping[str, str] = {}
    pids: Mapping[str, int] = {}


@asynccontextmanager
async def at_distance(cfg: config.Config, distance: Distance) -> AsyncIterator[Far]:
    """While the body runs, the services may be asked over a long way."""
    if not distance:
        yield Far()
        return
    store, model = urlsplit(cfg.objects.endpoint_url or ""), urlsplit(cfg.model.url)
    ways: dict[str, FarAddress] = {}
    if distance.store_ms or distance.slow.share:
        ways["store"] = _http(store, distance.store_ms, STORE_SPREAD, distance.slow)
    if distance.model_ms:
        ways["model"] = _http(model, distance.model_ms, MODEL_SPREAD, Slow())
    if distance.kafka_ms:
        if cfg.kafka.security_protocol.endswith("SSL"):
            raise usage("--kafka-ms: what is encrypted cannot be relayed; take a plain listener")
        for host, port in await brokers_of(cfg.kafka):
            ways[f"kafka {host}:{port}"] = FarAddress(host, port, "kafka", distance.kafka_ms)
    async with relaying(list(ways.values())) as (relayed, pid):
        ports = dict(zip(ways, relayed, strict=True))
        settings = {}
        if "store" in ports:
            settings["OBJECTS__ENDPOINT_URL"] = _moved(store, ports.pop("store"))
        if "model" in ports:
            settings["MODEL__URL"] = _moved(model, ports.pop("model"))
        if ports:
            addresses = [f"{ways[name].host}:{port}" for name, port in ports.items()]
            settings["KAFKA__BOOTSTRAP_SERVERS"] = ",".join(addresses)
        yield Far(settings, {"distance": pid})


@asynccontextmanager
async def relaying(
    ways: list[FarAddress], launcher: Sequence[str] = ()
) -> AsyncIterator[tuple[list[int], int]]:
    """While the body runs, the ways may be taken. Yields the ports where they begin, in their
    order, and the process id of their relay. `launcher`: see `children.start`.
    """
    task = msgspec.json.encode(ways)
    async with child("penstock.tools.bench.distance", stdin=task, launcher=launcher) as relay:
        yield (await line(relay, Relayed)).ports, relay.pid
        await stop(relay)


def _http(url: SplitResult, wait_ms: float, spread: float, slow: Slow) -> FarAddress:
    port = url.port or (443 if url.scheme == "https" else 80)
    return FarAddress(url.hostname or "", port, "http", wait_ms, spread, slow)


def _moved(url: SplitResult, port: int) -> str:
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return url._replace(netloc=f"{host}:{port}").geturl()


def wait_s(way: FarAddress, chance: random.Random) -> float:
    """How long the next request waits."""
    if way.slow.share and chance.random() < way.slow.share:
        return way.slow.ms / 1000
    return way.wait_ms * math.exp(way.spread * chance.gauss(0.0, 1.0)) / 1000


async def _relay(ways: list[FarAddress]) -> None:
    """Relay until SIGTERM, or until the bench is gone: one that is killed ends no process."""
    bench, loop = os.getppid(), asyncio.get_running_loop()
    # The waits of two runs are the same, as far as their requests are.
    chance = random.Random(0)
    ports: dict[tuple[str, int], int] = {}
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with asyncio.TaskGroup() as connecting:
        for way in ways:
            accept = partial(_accept, way, chance, ports, connecting)
            server = await loop.create_server(accept, way.host, way.begin)
            ports[way.host, way.port] = server.sockets[0].getsockname()[1]
        say(Relayed(list(ports.values())))
        while not ended.is_set() and os.getppid() == bench:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await ended.wait()


class _Side(asyncio.Protocol):
    """One side of a relayed connection. What it sends is passed on to the other side, in its order;
    `waits` cuts it into parts and says how many seconds each waits. A side that ends, ends the
    other.
    """

    other: "_Side"

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[bytes] = deque()
        self._due_s = 0.0
        self._is_full = self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_closed:
            transport.close()
        self._read_on()
        self.other._read_on()

    def data_received(self, data: bytes) -> None:
        now_s = self._loop.time()
        for part, wait_s in self._waits(data):
            self._due_s = max(self._due_s, now_s + wait_s)
            if self._waiting or self._due_s > now_s:
                self._waiting.append(part)
                self._loop.call_at(self._due_s, self._pass_next)
            else:
                self.other._write(part)
        self._read_on()

    def _pass_next(self) -> None:
        self.other._write(self._waiting.popleft())
        self._read_on()

    def _write(self, part: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(part)

    def _read_on(self) -> None:
        """Read only as much as the other side takes."""
        if self._transport is None:
            return
        is_taken = self.other._transport is not None and not self.other._is_full
        if is_taken and len(self._waiting) < _MOST_WAITING:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_full = True
        self.other._read_on()

    def resume_writing(self) -> None:
        self._is_full = False
        self.other._read_on()

    def connection_lost(self, error: Exception | None) -> None:
        self.other.close()

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()


def _accept(
    way: FarAddress,
    chance: random.Random,
    ports: Mapping[tuple[str, int], int],
    connecting: asyncio.TaskGroup,
) -> _Side:
    there, back = _http_waits(way, chance) if way.kind == "http" else _kafka_waits(way, ports)
    client, service = _Side(there), _Side(back)
    client.other, service.other = service, client

    async def connect() -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: service, way.host, way.port)
        except OSError:
            client.close()  # as the service itself would: there is nobody

    connecting.create_task(connect())
    return client


def _http_waits(way: FarAddress, chance: random.Random) -> tuple[Waits, Waits]:
    is_begun = False

    def there(data: bytes) -> Iterator[tuple[bytes, float]]:
        nonlocal is_begun
        yield data, 0.0 if is_begun else wait_s(way, chance)
        is_begun = True

    def back(data: bytes) -> Iterator[tuple[bytes, float]]:
        nonlocal is_begun
        is_begun = False
        yield data, 0.0

    return there, back


def _kafka_waits(way: FarAddress, ports: Mapping[tuple[str, int], int]) -> tuple[Waits, Waits]:
    # The correlation ids of requests whose answers name brokers. They follow the size, the key and
    # the version of a request, and the size of an answer.
    asked: set[bytes] = set()
    moved = {
        host.encode() + port.to_bytes(4): host.encode() + near.to_bytes(4)
        for (host, port), near in ports.items()
    }

    def sent(frame: bytes) -> bytes:
        if int.from_bytes(frame[4:6]) in _NAMES_BROKERS:
            asked.add(frame[8:12])
        return frame

    def answered(frame: bytes) -> bytes:
        if frame[4:8] in asked:
            asked.discard(frame[4:8])
            for address, near in moved.items():
                frame = frame.replace(address, near)
        return frame

    half_s = way.wait_ms / 2000
    return _frames(half_s, sent), _frames(half_s, answered)


def _frames(wait_s: float, change: Callable[[bytes], bytes]) -> Waits:
    """Whole frames, each of them changed and late by `wait_s`."""
    received = bytearray()

    def waits(data: bytes) -> Iterator[tuple[bytes, float]]:
        received.extend(data)
        while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4])):
            frame = bytes(received[:size])
            del received[:size]
            yield change(frame), wait_s

    return waits


if __name__ == "__main__":
    serve(list[FarAddress], _relay)
