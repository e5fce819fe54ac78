"""A proxy that speaks Kafka, between a worker and the one broker of the stack.

Rule: what it is not asked to spoil passes as it is, except that the broker's address becomes its
own. Requests of a connection are handled one after the other, as the broker does it. What a test
has planned for a kind of request happens to its next ones, in that order. Owner: the test.
"""

import asyncio
import importlib
import pkgutil
import struct
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import Any, Literal

import aiokafka.protocol
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, RequestStruct
from aiokafka.protocol.types import Array, Boolean, Bytes, Schema, String, TaggedFields

from penstock.adapters.kafka import requests


class Api(IntEnum):
    """Kinds of requests by their key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32


API_VERSIONS, UNSUPPORTED_VERSION = 18, 35


@dataclass(frozen=True, slots=True)
class Act:
    """What becomes of one request.

    refuse: answered with the code; the broker never hears of it. spoil: the broker does it, and the
    answer says the code all the same; parts: the answer about each partition does. cut: the
    connection breaks before the broker hears of it. lose: the broker does it, and the connection
    breaks instead of the answer. twice: the broker gets it twice. hold: the broker gets it so many
    seconds later.
    """

    how: Literal["refuse", "spoil", "parts", "cut", "lose", "twice", "hold"]
    code: int = 0
    seconds: float = 0.0


def refuse(code: int) -> Act:
    return Act("refuse", code)


def spoil(code: int) -> Act:
    return Act("spoil", code)


def parts(code: int) -> Act:
    return Act("parts", code)


def hold(seconds: float) -> Act:
    return Act("hold", seconds=seconds)


CUT, LOSE, TWICE = Act("cut"), Act("lose"), Act("twice")


class KafkaProxy:
    """Made by `proxy_before`; `address` is what a worker gets. `is_old`: it passes for brokers
    before Kafka 4.0, which do not have the second version of transactions.
    """

    def __init__(self, target: str, *, is_old: bool) -> None:
        self._is_old = is_old
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.port = 0
        self.seen: Counter[Api] = Counter()
        self._plan: defaultdict[int, deque[Act]] = defaultdict(deque)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._speaks = asyncio.Event()
        self._speaks.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __repr__(self) -> str:
        left = {Api(key).name: list(acts) for key, acts in self._plan.items() if acts}
        return f"seen {dict(self.seen)}, still to come {left}"

    def plan(self, api: Api, *acts: Act) -> None:
        """What happens to the next requests of this kind."""
        self._plan[api].extend(acts)

    def forget(self) -> None:
        """From now on everything passes."""
        self._plan.clear()

    @contextmanager
    def mute(self) -> Iterator[None]:
        """It accepts connections and never answers, as long as the block lasts: as a broker that a
        signal has stopped.
        """
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    @property
    def is_done(self) -> bool:
        """All that was planned has happened."""
        return not any(self._plan.values())

    @property
    def is_left(self) -> bool:
        """Nobody is connected, and all that came has been handled."""
        return not self._writers

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # it is here before we are at the broker
        ends = [writer]
        try:
            there_reader, there = await asyncio.open_connection(self._host, self._port)
            self._writers.add(there)
            ends.append(there)
            while True:
                frame = await _frame(reader)
                await self._speaks.wait()
                answer = await self._handle(frame, there_reader, there)
                if answer is None:
                    return
                await self._speaks.wait()
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
        except (OSError, EOFError):
            pass  # either side went: so does the other
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _handle(
        self, frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """The answer; None: the connection breaks."""
        key, version = struct.unpack(">hh", frame[:4])
        if key == API_VERSIONS:
            return await self._versions(frame, version, reader, writer)
        act = self._next(key)
        if act is not None and act.how == "cut":
            return None
        kind = _REQUESTS.get((key, version))
        if act is not None and act.how == "refuse":
            assert kind is not None, f"request {key} of version {version}"
            return frame[4:8] + b"\0" * (_head(kind) - 4) + _refusal(kind, frame, act.code)
        if act is not None and act.how == "hold":
            await asyncio.sleep(act.seconds)
        answer = await self._ask(frame, reader, writer)
        if act is not None and act.how == "twice":
            await self._ask(frame, reader, writer)
        if act is not None and act.how == "lose":
            return None
        if kind is None:
            return answer
        if act is not None and act.how in ("spoil", "parts"):
            head = _head(kind)
            answer = answer[:head] + _spoilt(kind, answer[head:], act)
        if key in (Api.METADATA, Api.FIND_COORDINATOR):
            head = _head(kind)
            here = _changed(kind, answer[head:], "host", "127.0.0.1")
            return answer[:head] + _changed(kind, here, "port", self.port)
        return answer

    async def _versions(
        self, frame: bytes, version: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Of what the broker can do, what is understood here; asked in the first version, the only
        one without tagged fields. In the version of ours the features are asked for.
        """
        if (API_VERSIONS, version) not in _REQUESTS:
            return frame[4:8] + struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        answer = await self._ask(frame, reader, writer)
        if version > 0:
            return answer
        head, (count,), places = answer[:6], struct.unpack(">i", answer[6:10]), answer[10:]
        most = {key: max(v for k, v in _REQUESTS if k == key) for key, _ in _REQUESTS}
        kept = [
            (key, least, min(last, most[key]))
            for key, least, last in struct.iter_unpack(">hhh", places[: 6 * count])
            if key in most and not (self._is_old and key == API_VERSIONS)
        ]
        return (
            head
            + struct.pack(">i", len(kept))
            + b"".join(struct.pack(">hhh", *each) for each in kept)
        )

    def _next(self, key: int) -> Act | None:
        with suppress(ValueError):
            self.seen[Api(key)] += 1
        return self._plan[key].popleft() if self._plan[key] else None

    @staticmethod
    async def _ask(
        frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(struct.pack(">i", len(frame)) + frame)
        await writer.drain()
        return await _frame(reader)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _known() -> Iterator[type[RequestStruct]]:
    for module in pkgutil.iter_modules(aiokafka.protocol.__path__):
        importlib.import_module(f"aiokafka.protocol.{module.name}")
    waiting = [RequestStruct]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if hasattr(kind, "API_KEY"):
                yield kind


# Those that aiokafka sends, in the versions without tagged fields, which are all of its own that
# come from us; and ours.
_REQUESTS = {
    (kind.API_KEY, kind.API_VERSION): kind
    for kind in _known()
    if not kind.FLEXIBLE_VERSION or kind.__module__ == requests.__name__
}


def _head(kind: type[RequestStruct]) -> int:
    """The length of an answer's head: the number of the request and, if there are any, no tags."""
    return 5 if kind.FLEXIBLE_VERSION else 4


def _changed(kind: type[RequestStruct], answer: bytes, name: str, value: object) -> bytes:
    """The answer with every field of that name set."""
    fields = _fields(kind, answer)
    return _encoded(kind, _set(kind.RESPONSE_TYPE.SCHEMA, fields, name, value))


def _spoilt(kind: type[RequestStruct], answer: bytes, act: Act) -> bytes:
    """Where an answer has an error of its own besides those of its parts, it has no parts, as Kafka
    does it.
    """
    fields, schema = _fields(kind, answer), kind.RESPONSE_TYPE.SCHEMA
    own = schema.names.index("error_code") if "error_code" in schema.names else None
    if act.how == "spoil" and own is not None:
        fields = [[] if isinstance(field, list) else field for field in fields]
    changed = _set(schema, fields, "error_code", act.code)
    if act.how == "parts" and own is not None:
        changed[own] = fields[own]
    return _encoded(kind, changed)


def _fields(kind: type[RequestStruct], answer: bytes) -> list[Any]:
    decoded = kind.RESPONSE_TYPE.decode(BytesIO(answer))
    return [decoded.get_item(name) for name in kind.RESPONSE_TYPE.SCHEMA.names]


def _set(schema: Schema, data: Any, name: str, value: object) -> list[Any]:
    changed = []
    for field, of, item in zip(schema.names, schema.fields, data, strict=True):
        if field == name:
            changed.append(value)
        elif isinstance(of, Array) and isinstance(of.array_of, Schema):
            changed.append([_set(of.array_of, one, name, value) for one in item or []])
        else:
            changed.append(item)
    return changed


def _refusal(kind: type[RequestStruct], frame: bytes, code: int) -> bytes:
    """An answer to this request in which everything failed with the code."""
    buffer = BytesIO(frame)
    header = RequestHeader_v2 if kind.FLEXIBLE_VERSION else RequestHeader_v1
    header.SCHEMA.decode(buffer)
    request = kind.decode(buffer)
    places = getattr(request, "topics", None) or []
    schema = kind.RESPONSE_TYPE.SCHEMA
    if "error_code" in schema.names:
        places = []
    return _encoded(kind, _blank(schema, places, code))


def _blank(schema: Schema, places: Any, code: int, first: Any = None) -> list[Any]:
    """`places`: topics with their partitions, or the partitions of the topic `first`."""
    made: list[Any] = []
    for number, (field, of) in enumerate(zip(schema.names, schema.fields, strict=True)):
        if number == 0 and first is not None:
            made.append(first)
        elif field == "error_code":
            made.append(code)
        elif isinstance(of, Array):
            is_of_places = isinstance(of.array_of, Schema) and field != "record_errors"
            made.append([_place(of.array_of, place, code) for place in places if is_of_places])
        elif of is Boolean:
            made.append(False)
        elif of is TaggedFields:
            made.append({})
        elif of is Bytes:
            made.append(b"")
        elif isinstance(of, String):
            made.append("")
        else:
            made.append(-1 if field != "throttle_time_ms" else 0)
    return made


def _place(schema: Schema, place: Any, code: int) -> list[Any]:
    """A topic with its partitions, or a partition (bare, or the first of several fields)."""
    if isinstance(place, int):
        return _blank(schema, [], code, place)
    first, *rest = place
    partitions = rest[0] if isinstance(first, str) else []
    return _blank(schema, partitions, code, first)


def _encoded(kind: type[RequestStruct], fields: list[Any]) -> bytes:
    encoded: bytes = kind.RESPONSE_TYPE.SCHEMA.encode(fields)
    return encoded


@asynccontextmanager
async def proxy_before(target: str, *, is_old: bool = False) -> AsyncIterator[KafkaProxy]:
    """`target` is the host and port of the broker."""
    proxy = KafkaProxy(target, is_old=is_old)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
