import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from penstock.adapters.kafka.inside.producers import (
    RECORD_OVERHEAD_BYTES,
    batches,
    fill,
    filled,
    give_up,
    sealed,
)
from penstock.ports import HEADERS_BYTES, Outgoing, header_bytes

KEYS: list[bytes | None] = [b"cam-1", None, b"cam-2", b""] * 50
VALUES = [b"%d" % (number**7) for number in range(200)]
HEADERS = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]


def empty(nbytes: int = 100_000) -> BatchBuilder:
    return BatchBuilder(nbytes, 0)


@pytest.mark.parametrize("has_headers", [False, True])
def test_records_come_out_as_if_they_were_appended_one_by_one(*, has_headers: bool) -> None:
    bulk, single = empty(), empty()
    outgoing = Outgoing("t", 0, [], [])
    for number, (key, value) in enumerate(zip(KEYS, VALUES, strict=True)):
        headers = HEADERS if has_headers and number % 3 else None
        outgoing.add(key, [value], headers)
        single.append(timestamp=1_800_000_000_000, key=key, value=value, headers=headers or [])
    assert fill(bulk, 1_800_000_000_000, outgoing, 0) == 200
    assert bulk.record_count() == single.record_count() == 200
    assert bulk._build() == single._build()


def test_a_full_batch_says_where_to_go_on() -> None:
    whole, start, sizes = [], 0, []
    while start < len(VALUES):
        batch = empty(1_000)
        stop = fill(batch, 1, Outgoing("t", 0, KEYS, VALUES), start)
        sizes.append(batch.size())
        whole.append((start, stop, batch.record_count()))
        start = stop
    assert max(sizes) <= 1_000
    assert len(whole) > 3
    assert all(stop - start == count for start, stop, count in whole)


def test_what_fits_also_fits_with_its_headers() -> None:
    """The broker compares a record that is alone in its batch with the topic's limit."""
    most, key = 5_000, b"cam-1"
    name = "x" * 11
    headers = [(name, b"y" * (HEADERS_BYTES - len(name) - 4))]
    assert header_bytes(HEADERS) <= header_bytes(headers) == HEADERS_BYTES
    outgoing = Outgoing("t", 0, [], [])
    outgoing.add(key, [b"v" * (most - RECORD_OVERHEAD_BYTES - len(key) - 1)], headers)
    (batch,) = filled(outgoing, 1_800_000_000_000, most, 0)
    assert len(sealed(batch, 1, 0, 0)) <= most


async def test_no_batch_is_larger_than_its_topic_takes() -> None:
    producer = AIOKafkaProducer(enable_idempotence=True)
    outgoing = Outgoing("t", 0, KEYS, VALUES)
    made = list(batches(producer, outgoing, 1, 1_000))
    await give_up(producer)
    assert max(batch.size() for batch in made) <= 1_000
    assert sum(batch.record_count() for batch in made) == len(VALUES)
