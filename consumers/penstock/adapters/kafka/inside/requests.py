"""Writes and reads the two requests of every tick with `struct`: fetch version 11, produce 7.

Rule: requests have the same bytes and answers the same values as with aiokafka 0.14's own classes;
a test compares them. Those walk a schema field by field, some 240 calls a tick. A broker that does
not know these versions gets aiokafka's own requests. Owner: the clients that read and write, after
`lean`.
Source: "Kafka protocol guide": Fetch 11, Produce 7, request header 1.
"""

import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

PRODUCE: Final = 0
FETCH: Final = 1
PRODUCE_VERSION: Final = 7
FETCH_VERSION: Final = 11

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
# Api, its version, correlation id.
_HEAD = struct.Struct(">hhi")
# Replica -1 (a consumer), wait, least and most bytes, isolation, session 0 of epoch -1 (there is
# none), topics.
_FETCH = struct.Struct(">iiiibiii")
# Partition, leader epoch -1 (unknown), offset, the log's start -1 (unknown), most bytes.
_FETCH_PARTITION = struct.Struct(">iiqqi")
# Throttled for, error code, session, topics.
_FETCHED = struct.Struct(">ihii")
# Partition, error code, end, last stable offset, the log's start, aborted transactions.
_FETCHED_PARTITION = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")
# Preferred replica, bytes of records.
_FETCHED_RECORDS = struct.Struct(">ii")
# Acknowledgements, time for them, topics.
_PRODUCE = struct.Struct(">hii")
_PRODUCE_PARTITION = struct.Struct(">ii")
# Partition, error code, offset, timestamp, the log's start.
_PRODUCED_PARTITION = struct.Struct(">ihqqq")


def lean(client: AIOKafkaClient) -> None:
    """From now on the client sends these two requests by the classes below."""
    send = client.send

    def send_lean(node: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        kind = type(request)
        if kind is FetchRequest:
            request = LeanFetch(request)
        elif kind is ProduceRequest:
            request = LeanProduce(request)
        return send(node, request, group=group)

    client.send = send_lean


class LeanFetch:
    def __init__(self, request: FetchRequest) -> None:
        self._request = request

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        if not _is_known(versions, FETCH, FETCH_VERSION):
            return self._request.prepare(versions)
        return _Written(FETCH, FETCH_VERSION, self._body(), FetchAnswer)

    def _body(self) -> bytes:
        asked = self._request
        topics = asked.topics
        pieces = [
            _FETCH.pack(
                -1,
                asked._max_wait_ms,
                asked._min_bytes,
                asked._max_bytes,
                asked._isolation_level,
                0,
                -1,
                len(topics),
            )
        ]
        for topic, partitions in topics:
            pieces.append(_string(topic))
            pieces.append(_INT32.pack(len(partitions)))
            pieces += [
                _FETCH_PARTITION.pack(partition, -1, offset, -1, most_bytes)
                for partition, offset, most_bytes in partitions
            ]
        # The list of forgotten topics: empty, as there is no fetch session.
        pieces.append(_INT32.pack(0))
        pieces.append(_string(asked._rack_id))
        return b"".join(pieces)


class LeanProduce:
    def __init__(self, request: ProduceRequest) -> None:
        self._request = request

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        if not _is_known(versions, PRODUCE, PRODUCE_VERSION):
            return self._request.prepare(versions)
        return _Written(PRODUCE, PRODUCE_VERSION, self._body(), ProduceAnswer)

    def _body(self) -> bytes:
        said = self._request
        topics = said._topics
        transactional_id = said._transactional_id
        pieces = [
            _INT16.pack(-1) if transactional_id is None else _string(transactional_id),
            _PRODUCE.pack(said.required_acks, said._timeout, len(topics)),
        ]
        for topic, partitions in topics:
            pieces.append(_string(topic))
            pieces.append(_INT32.pack(len(partitions)))
            for partition, records in partitions:
                pieces.append(_PRODUCE_PARTITION.pack(partition, len(records)))
                pieces.append(records)
        return b"".join(pieces)


class FetchAnswer:
    """In the form that aiokafka's fetcher reads: for each partition its number, error code, end,
    last stable offset, the log's start, aborted transactions, preferred replica, and records.
    """

    API_VERSION: Final = FETCH_VERSION

    def __init__(self, topics: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        self.topics = topics

    @classmethod
    def decode(cls, data: BytesIO) -> "FetchAnswer":
        read = _Reader(data)
        topics = []
        _, _, _, count = read.take(_FETCHED)
        for _ in range(count):
            topic, partitions = read.string(), []
            for _ in range(read.take(_INT32)[0]):
                *said, aborted = read.take(_FETCHED_PARTITION)
                ended = None if aborted < 0 else [read.take(_ABORTED) for _ in range(aborted)]
                replica, nbytes = read.take(_FETCHED_RECORDS)
                records = None if nbytes < 0 else read.bytes(nbytes)
                partitions.append((*said, ended, replica, records))
            topics.append((topic, partitions))
        return cls(topics)


class ProduceAnswer:
    """In the form that aiokafka's sender reads: for each partition its number, error code, offset,
    timestamp and the log's start.
    """

    API_VERSION: Final = PRODUCE_VERSION

    def __init__(self, topics: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        self.topics = topics

    @classmethod
    def decode(cls, data: BytesIO) -> "ProduceAnswer":
        read = _Reader(data)
        topics = []
        for _ in range(read.take(_INT32)[0]):
            topic, count = read.string(), read.take(_INT32)[0]
            topics.append((topic, [read.take(_PRODUCED_PARTITION) for _ in range(count)]))
        return cls(topics)


class _Reader:
    """Raises for an answer that is cut off, as aiokafka's own classes do: it then closes the
    connection.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: BytesIO) -> None:
        self._data, self._at = data.getvalue(), data.tell()

    def take(self, kind: struct.Struct) -> tuple[Any, ...]:
        found = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return found

    def bytes(self, nbytes: int) -> bytes:
        found = self._data[self._at : self._at + nbytes]
        if len(found) < nbytes:
            raise ValueError(f"an answer of Kafka ends {nbytes - len(found)} bytes too early")
        self._at += nbytes
        return found

    def string(self) -> str:
        return self.bytes(self.take(_INT16)[0]).decode()


class _AnswerHead(NamedTuple):
    correlation_id: int


class _Piece(NamedTuple):
    data: bytes

    def encode(self) -> bytes:
        return self.data


class _Written:
    """A request with the methods that aiokafka's connection calls."""

    def __init__(self, api: int, version: int, body: bytes, answer: type[Any]) -> None:
        self._api = api
        self._version = version
        self._body = body
        self.RESPONSE_TYPE = answer

    def build_request_header(self, correlation_id: int, client_id: str) -> _Piece:
        head = _HEAD.pack(self._api, self._version, correlation_id)
        return _Piece(head + _string(client_id))

    def encode(self) -> bytes:
        return self._body

    def parse_response_header(self, data: BytesIO) -> _AnswerHead:
        return _AnswerHead(*_INT32.unpack(data.read(_INT32.size)))


def _is_known(versions: Mapping[int, tuple[int, int]], api: int, version: int) -> bool:
    least, most = versions.get(api, (1, 0))
    return least <= version <= most


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data
