"""Ours and aiokafka's own classes write the same bytes and read the same answers."""

from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.protocol.produce import ProduceRequest, ProduceResponse_v7

from penstock.adapters.kafka.inside.requests import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    LeanFetch,
    LeanProduce,
)

KNOWN = {PRODUCE: (3, 12), FETCH: (4, 17)}
OLD = {PRODUCE: (0, 5), FETCH: (0, 6)}

FETCHES = [
    FetchRequest(500, 1, 50 << 20, 0, [("refs", [(0, 17, 1 << 20), (3, 1 << 40, 1 << 20)])]),
    FetchRequest(20, 1, 1 << 20, 1, [("a", [(0, 0, 9)]), ("ü", [(7, 5, 9)])], rack_id="eu-1"),
    FetchRequest(0, 0, 0, 0, []),
]
PRODUCES = [
    ProduceRequest(None, -1, 40_000, [("predictions", [(0, b"batch"), (2, b"")])]),
    ProduceRequest("group/refs/0", -1, 1, [("a", [(0, b"1")]), ("b", [(1, b"2" * 300)])]),
]
FETCHED = [
    (0, 0, 7, []),
    (
        12,
        0,
        0,
        [
            ("refs", [(0, 0, 40, 39, 2, None, -1, b"records"), (3, 3, -1, -1, -1, [], 4, b"")]),
            ("ü", [(1, 0, 1 << 40, 5, 0, [(1_000, 3), (1_001, 4)], -1, None)]),
        ],
    ),
]
PRODUCED = [
    ([("predictions", [(0, 0, 17, -1, 0), (2, 6, -1, -1, -1)]), ("ü", [(1, 0, 1, 1, 1)])], 0),
    ([], 5),
]


def written(request: Any, versions: dict[int, tuple[int, int]]) -> tuple[bytes, bytes]:
    made = request.prepare(versions)
    return made.build_request_header(5, "penstock").encode(), made.encode()


def answered(request: Any, body: bytes) -> tuple[int, Any]:
    """Correlation id and topics, after the head as the connection reads it."""
    made, data = request.prepare(KNOWN), BytesIO(b"\0\0\0\x05" + body)
    return made.parse_response_header(data).correlation_id, made.RESPONSE_TYPE.decode(data)


@pytest.mark.parametrize("versions", [KNOWN, OLD, {PRODUCE: (3, 7), FETCH: (11, 11)}])
@pytest.mark.parametrize("request_", FETCHES)
def test_a_fetch_is_written_as_aiokafka_writes_it(
    request_: FetchRequest, versions: dict[int, tuple[int, int]]
) -> None:
    assert written(LeanFetch(request_), versions) == written(request_, versions)


@pytest.mark.parametrize("versions", [KNOWN, {PRODUCE: (3, 5)}, {PRODUCE: (7, 7)}])
@pytest.mark.parametrize("request_", PRODUCES)
def test_a_produce_is_written_as_aiokafka_writes_it(
    request_: ProduceRequest, versions: dict[int, tuple[int, int]]
) -> None:
    assert written(LeanProduce(request_), versions) == written(request_, versions)


@pytest.mark.parametrize("said", FETCHED)
def test_what_was_fetched_is_read_as_aiokafka_reads_it(said: tuple[Any, ...]) -> None:
    body = FetchResponse_v11(*said).encode()
    number, answer = answered(LeanFetch(FETCHES[0]), body)
    assert (number, answer.API_VERSION) == (5, FETCH_VERSION)
    assert answer.topics == FetchResponse_v11.decode(body).topics


@pytest.mark.parametrize("said", PRODUCED)
def test_what_was_produced_is_read_as_aiokafka_reads_it(said: tuple[Any, ...]) -> None:
    body = ProduceResponse_v7(*said).encode()
    number, answer = answered(LeanProduce(PRODUCES[0]), body)
    assert (number, answer.API_VERSION) == (5, PRODUCE_VERSION)
    assert answer.topics == ProduceResponse_v7.decode(body).topics


def test_an_answer_that_is_cut_off_is_none() -> None:
    body = FetchResponse_v11(*FETCHED[1]).encode()
    for nbytes in range(len(body)):
        with pytest.raises(Exception, match=r"bytes|requires"):
            answered(LeanFetch(FETCHES[0]), body[:nbytes])
