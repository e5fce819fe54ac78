"""Many lanes that write into one output partition."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder

from penstock.adapters.kafka.inside.producers import fill
from penstock.adapters.kafka.sink import HEAD_BYTES, Deliveries, OutputQueue, joined, size_of
from penstock.ports import Outgoing
from penstock.tools.simulation.virtual_time import virtual_time

MOST_BYTES = 1_000


def some(*values: bytes, times_ms: Sequence[int] | None = None) -> Outgoing:
    times = None if times_ms is None else list(times_ms)
    return Outgoing("out", 0, [b"k"] * len(values), list(values), times_ms=times)


class Producer:
    """Has room for a batch once a second."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.fails = 0

    async def room(self, topic: str, partition: int) -> None:
        await asyncio.sleep(1.0)

    async def hand_over(self, outgoing: Outgoing) -> Deliveries:
        if self.fails:
            self.fails -= 1
            raise OSError
        self.batches.append(outgoing.values)
        return []


async def once(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def twice(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except OSError:
        await work()


@virtual_time
async def test_what_waits_meanwhile_leaves_in_one_batch_in_the_order_of_the_calls() -> None:
    queue, producer = OutputQueue(), Producer()
    await asyncio.gather(
        *(queue.send(some(b"%d" % n), MOST_BYTES, producer, once) for n in range(9))
    )
    assert producer.batches == [[b"%d" % n for n in range(9)]]


@virtual_time
async def test_a_batch_wakes_all_whose_records_it_has_in_one_turn_of_the_loop() -> None:
    queue, producer = OutputQueue(), Producer()
    sending = [
        asyncio.create_task(queue.send(some(b"x"), MOST_BYTES, producer, once)) for _ in range(9)
    ]
    await sending[0]
    await asyncio.sleep(0)
    assert all(task.done() for task in sending)


@virtual_time
async def test_whose_turn_came_as_it_was_cancelled_passes_it_on() -> None:
    queue, producer = OutputQueue(), Producer()
    sending = [
        asyncio.create_task(queue.send(some(b"%d" % n * 600), MOST_BYTES, producer, once))
        for n in range(3)
    ]
    await sending[0]
    sending[1].cancel()  # it has been woken, and has not run yet
    await sending[2]
    assert producer.batches == [[b"0" * 600], [b"2" * 600]]


@virtual_time
async def test_a_batch_is_not_larger_than_it_may_be() -> None:
    queue, producer = OutputQueue(), Producer()
    large = [some(b"a" * 400), some(b"b" * 400), some(b"c" * 2_000), some(b"d"), some(b"e" * 400)]
    await asyncio.gather(*(queue.send(each, MOST_BYTES, producer, once) for each in large))
    seen = [[value[:1] for value in batch] for batch in producer.batches]
    assert seen == [[b"a", b"b"], [b"c"], [b"d", b"e"]]


@virtual_time
async def test_who_is_cancelled_takes_its_own_records_back_and_no_others() -> None:
    queue, producer = OutputQueue(), Producer()
    sending = [
        asyncio.create_task(queue.send(some(b"%d" % n), MOST_BYTES, producer, once))
        for n in range(4)
    ]
    await asyncio.sleep(0.5)
    sending[0].cancel()  # it waits for room
    sending[2].cancel()  # it waits for its turn
    done = await asyncio.gather(*sending, return_exceptions=True)
    assert [isinstance(end, asyncio.CancelledError) for end in done] == [True, False, True, False]
    assert [value for batch in producer.batches for value in batch] == [b"1", b"3"]


@virtual_time
async def test_what_fails_for_a_while_is_tried_again_with_all_that_waits_then() -> None:
    queue, producer = OutputQueue(), Producer()
    producer.fails = 1
    sent = [queue.send(some(b"%d" % n), MOST_BYTES, producer, twice) for n in range(3)]
    await asyncio.gather(*sent)
    assert [value for batch in producer.batches for value in batch] == [b"0", b"1", b"2"]


@virtual_time
async def test_a_failure_is_told_to_each_whose_records_were_not_taken() -> None:
    queue, producer = OutputQueue(), Producer()
    producer.fails = 3
    done = await asyncio.gather(
        *(queue.send(some(b"x"), MOST_BYTES, producer, once) for _ in range(3)),
        return_exceptions=True,
    )
    assert [type(end) for end in done] == [OSError] * 3


@virtual_time
async def test_records_with_times_of_their_own_are_not_joined_with_others() -> None:
    queue, producer = OutputQueue(), Producer()
    await asyncio.gather(
        *(
            queue.send(each, MOST_BYTES, producer, once)
            for each in (some(b"1"), some(b"2", times_ms=[7]), some(b"3", times_ms=[8]))
        )
    )
    assert producer.batches == [[b"1"], [b"2", b"3"]]


def test_joined_records_keep_their_keys_headers_and_times() -> None:
    headed = Outgoing("out", 0, [None], [b"2"], headers=[[("h", b"v")]])
    whole = joined([some(b"1"), headed])
    assert (whole.keys, whole.values) == ([b"k", None], [b"1", b"2"])
    assert whole.headers == [[], [("h", b"v")]]
    assert whole.times_ms is None
    assert joined([some(b"1", times_ms=[3]), some(b"2", times_ms=[4])]).times_ms == [3, 4]


@pytest.mark.parametrize("bytes_each", [0, 1, 200, 40_000])
def test_a_size_is_at_least_that_of_the_batch(bytes_each: int) -> None:
    headers = [[("traceparent", b"x" * 55)]] * 20
    outgoing = Outgoing("out", 0, [b"key"] * 20, [b"v" * bytes_each] * 20, headers=headers)
    batch = BatchBuilder(10_000_000, 0, is_transactional=False)
    fill(batch, 1_795_208_217_412, outgoing, 0)
    assert batch.size() <= size_of(outgoing) + HEAD_BYTES


def test_what_is_sent_in_the_place_of_a_refused_record_is_asked_of_its_own_part() -> None:
    asked: list[tuple[str, int]] = []

    def part(name: str, count: int) -> Outgoing:
        def instead(index: int, value: bytes, reason: str) -> Sequence[bytes] | None:
            asked.append((name, index))
            return [reason.encode()]

        return Outgoing("out", 0, [None] * count, [b"v"] * count, instead=instead)

    whole = joined([part("a", 2), some(b"x"), part("b", 3)])
    assert whole.instead is not None
    assert [whole.instead(index, b"v", "no") for index in range(6)] == [
        [b"no"], [b"no"], None, [b"no"], [b"no"], [b"no"],
    ]  # fmt: skip
    assert asked == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
