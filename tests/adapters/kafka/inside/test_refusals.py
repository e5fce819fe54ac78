"""A producer, and a broker that refuses some of its records."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import BrokerResponseError
from aiokafka.protocol.produce import ProduceResponse_v8
from aiokafka.record.memory_records import MemoryRecords

from penstock import config
from penstock.adapters.kafka.error_codes import BROKER, CODES, RECORD, about
from penstock.adapters.kafka.inside.producers import (
    MARGIN_MS,
    batches,
    give_up,
    producer_of,
    times_mended,
)
from penstock.ports import Outgoing

WHERE = TopicPartition("predictions", 0)
TOO_LARGE, INVALID_TIME, OUT_OF_ORDER, INVALID_RECORD = 10, 32, 45, 87
HOUR_MS = 3_600_000


class Taken(NamedTuple):
    value: bytes
    time_ms: int


class Refusal(NamedTuple):
    code: int
    words: str = "no such record here"
    at: int | None = None


# A function that gets the records of a batch, and says why the batch is refused.
Judge = Callable[[list[Taken]], Refusal | None]


class Broker:
    """Takes batches in the order of their sequence numbers, as Kafka does it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.taken: list[Taken] = []
        self.asked = 0

    async def send(self, node: int, request: Any) -> Any:
        self.asked += 1
        built = request.prepare({0: (3, 8)})
        assert built.API_VERSION == 8
        ((topic, parts),) = built.topics
        ((partition, data),) = parts
        head = MemoryRecords(bytes(data)).next_batch()
        records = [Taken(one.value, one.timestamp) for one in head]
        findings = self.judge(records)
        if findings is None and head.base_sequence != len(self.taken):
            findings = Refusal(OUT_OF_ORDER)
        offset = len(self.taken)
        if findings is None:
            self.taken += records
            findings = Refusal(0, "")
        errors = [] if findings.at is None else [(findings.at, findings.words)]
        answer = (partition, findings.code, offset, -1, 0, errors, findings.words)
        return ProduceResponse_v8([(topic, [answer])], 0)


@asynccontextmanager
async def sending(broker: Broker) -> AsyncIterator[Callable[[Outgoing], Any]]:
    producer = producer_of(config.Kafka(), enable_idempotence=True)
    producer._txn_manager.set_pid_and_epoch(1, 0)
    producer.client.send = broker.send
    producer.client.cluster.leader_for_partition = lambda _: 0
    producer.client.force_metadata_update = asyncio.get_running_loop().create_future

    async def send(outgoing: Outgoing) -> Any:
        (batch,) = batches(producer, outgoing, 0, 1_000_000)
        return await producer._message_accumulator.add_batch(batch, WHERE, 10.0)

    await producer._sender.start()
    try:
        yield send
    finally:
        await give_up(producer)


def outgoing(*values: bytes, times_ms: list[int] | None = None) -> Outgoing:
    return Outgoing(WHERE.topic, 0, [b"k"] * len(values), list(values), None, times_ms)


def of_values(*refused: bytes, code: int = INVALID_RECORD, named: bool = False) -> Judge:
    def judge(records: list[Taken]) -> Refusal | None:
        for index, record in enumerate(records):
            if record.value in refused:
                return Refusal(code, at=index if named else None)
        return None

    return judge


VALUES = [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("code", [code for code in CODES if about(code) is RECORD])
async def test_a_refused_record_is_replaced_in_its_place(code: int, named: bool) -> None:
    if code == INVALID_TIME:
        return  # has tests of its own
    broker = Broker(of_values(b"2", b"7", code=code, named=named))
    out = outgoing(*VALUES)
    out.instead = lambda index, value, reason: [b"instead of %s: %s" % (value, reason.encode())]
    async with sending(broker) as send:
        delivered = await (await send(out))
        after = await (await send(outgoing(b"behind")))
    said = [CODES[code].name, *["no such record here"] * (2 if named else 1)]
    words = ": ".join(said).encode()
    expected = [
        b"instead of %s: %s" % (value, words) if value in (b"2", b"7") else value
        for value in VALUES
    ]
    assert [one.value for one in broker.taken] == [*expected, b"behind"]
    assert (delivered.offset, after.offset) == (0, 9)


async def test_a_batch_that_is_too_large_is_sent_in_parts() -> None:
    broker = Broker(lambda records: Refusal(TOO_LARGE) if len(records) > 3 else None)
    async with sending(broker) as send:
        await (await send(outgoing(*VALUES)))
    assert [one.value for one in broker.taken] == VALUES


async def test_a_record_without_a_replacement_fails_with_the_words_of_the_broker() -> None:
    broker = Broker(of_values(b"bad"))
    async with sending(broker) as send:
        with pytest.raises(BrokerResponseError, match="no such record here") as caught:
            await (await send(outgoing(b"bad")))
    assert caught.value.errno == INVALID_RECORD


async def test_a_replacement_that_is_refused_as_well_is_not_tried_for_ever() -> None:
    broker = Broker(lambda _: Refusal(INVALID_RECORD))
    out = outgoing(b"bad")
    out.instead = lambda index, value, reason: [b"worse"]
    async with sending(broker) as send:
        with pytest.raises(BrokerResponseError):
            await (await send(out))
    assert broker.asked == 2


@pytest.mark.parametrize("named", [True, False])
async def test_a_record_is_replaced_by_several_or_by_none_and_the_order_stays(named: bool) -> None:
    broker = Broker(of_values(b"2", b"7", b"7-", named=named))
    out = outgoing(*VALUES)
    places = {b"2": [], b"7": [b"7-", b"-7"], b"7-": [b"7."]}
    asked: list[int] = []

    def instead(index: int, value: bytes, reason: str) -> list[bytes]:
        asked.append(index)
        return places[value]

    out.instead = instead
    async with sending(broker) as send:
        one, behind = await send(out), asyncio.create_task(send(outgoing(b"behind")))
        assert (await one).offset < 0
        await (await behind)
    assert [one.value for one in broker.taken] == [
        b"0", b"1", b"3", b"4", b"5", b"6", b"7.", b"-7", b"8", b"behind",
    ]  # fmt: skip
    assert asked == [2, 7, 7]


async def test_a_batch_of_which_nothing_is_left_is_delivered() -> None:
    broker = Broker(of_values(b"bad"))
    out = outgoing(b"bad")
    out.instead = lambda index, value, reason: []
    async with sending(broker) as send:
        await (await send(out))
        await (await send(outgoing(b"good")))
    assert [one.value for one in broker.taken] == [b"good"]


def within(first_ms: int, last_ms: int) -> Judge:
    def judge(records: list[Taken]) -> Refusal | None:
        for index, record in enumerate(records):
            if not first_ms <= record.time_ms <= last_ms:
                words = (
                    f"Timestamp {record.time_ms} of message with offset {index} is out of range. "
                    f"The timestamp should be within [{first_ms}, {last_ms}]"
                )
                return Refusal(INVALID_TIME, words, index)
        return None

    return judge


async def test_a_time_that_the_topic_does_not_take_is_moved_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_ms = 1_795_000_000_000
    first_ms, last_ms = now_ms - HOUR_MS, now_ms + HOUR_MS
    broker = Broker(within(first_ms, last_ms))
    times = [now_ms, now_ms + 2 * HOUR_MS, 0, now_ms + 7]
    times_mended.clear()
    async with sending(broker) as send:
        await (await send(outgoing(*VALUES[:4], times_ms=times)))
        await (await send(outgoing(b"again", times_ms=[0])))
    least_ms, most_ms = first_ms + MARGIN_MS, last_ms - MARGIN_MS
    assert [one.time_ms for one in broker.taken] == [
        now_ms,
        most_ms,
        least_ms,
        now_ms + 7,
        least_ms,
    ]
    assert [one.value for one in broker.taken] == [*VALUES[:4], b"again"]
    assert times_mended == {WHERE.topic: 3}
    assert len([text for text in caplog.messages if "message.timestamp" in text]) == 1


async def test_a_short_span_is_met_in_its_middle() -> None:
    broker = Broker(within(1_000_000, 1_020_000))
    async with sending(broker) as send:
        await (await send(outgoing(b"old", times_ms=[5])))
    assert [one.time_ms for one in broker.taken] == [1_005_000]


async def test_times_that_stay_refused_are_given_up() -> None:
    words = "The timestamp should be within [5, 9]"
    broker = Broker(lambda _: Refusal(INVALID_TIME, words))
    async with sending(broker) as send:
        with pytest.raises(BrokerResponseError):
            await (await send(outgoing(b"row")))
    assert broker.asked == 4


@pytest.mark.parametrize("code", [code for code in CODES if about(code) is BROKER])
async def test_what_is_about_the_brokers_is_sent_again_as_it_is(code: int) -> None:
    left = [Refusal(code)] * 2
    broker = Broker(lambda _: left.pop() if left else None)
    async with sending(broker) as send:
        await (await send(outgoing(*VALUES)))
    assert [one.value for one in broker.taken] == VALUES
    assert broker.asked == 3
