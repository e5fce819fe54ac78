"""The next records of each partition for a dry run: bounded by their number and by their bytes."""

from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from penstock.adapters.inputs.bounded_sources import MOST_BYTES, heads
from penstock.adapters.kafka.reader import Reader, Spans

PARTITIONS = 4
MIB = 1 << 20


class Topic:
    """Records of `nbytes` each; how many bytes were read of it."""

    def __init__(self, records: int, nbytes: int) -> None:
        self._records = records
        self._value = bytes(nbytes)

    async def inputs(self) -> list[str]:
        return ["refs"]

    async def topic_id(self, topic: str) -> str | None:
        return None

    async def spans(self, topic: str) -> Spans:
        return dict.fromkeys(range(PARTITIONS), (0, self._records))

    async def committed(self, topic: str, spans: Spans) -> dict[int, Any]:
        return {}

    async def runs(
        self, topic: str, spans: Spans, passed: Callable[[int], None]
    ) -> AsyncIterator[tuple[int, Sequence[Any]]]:
        for number, (begin, end) in spans.items():
            for offset in range(begin, end):
                record = SimpleNamespace(
                    offset=offset, key=None, value=self._value, timestamp=0, headers=()
                )
                yield number, [record]


async def found(records: int, nbytes: int, most: int) -> list[list[int]]:
    reader = cast(Reader, Topic(records, nbytes))
    return [[record.offset for record in head.records] for head in await heads(reader, most)]


async def test_small_records_are_bounded_by_their_number() -> None:
    assert await found(2_500, 100, 1_000) == [list(range(1_000))] * PARTITIONS
    assert await found(10, 100, 1_000) == [list(range(10))] * PARTITIONS


async def test_large_records_are_bounded_by_their_bytes_but_there_is_one_of_each() -> None:
    share = MOST_BYTES // PARTITIONS // MIB
    assert await found(1_000, MIB, 1_000) == [list(range(share))] * PARTITIONS
    assert await found(9, MOST_BYTES, 1_000) == [[0]] * PARTITIONS
