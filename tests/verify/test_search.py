"""A record is found by halves: with few reads, also where a crash wrote a run of them again."""

import asyncio
import math
import random
from collections.abc import Sequence
from typing import NamedTuple, overload

import pytest

from penstock.tools.verify.trace import TracedRow, TracedRows, place_of, search

CHUNK = 300


class Record(NamedTuple):
    offset: int
    place: TracedRow | None


class Log:
    """Offsets have gaps, as transactions leave them."""

    def __init__(self, places: Sequence[TracedRow | None], *, gaps: bool = False) -> None:
        step = 3 if gaps else 1
        self._places = places
        self.end = len(places) * step
        self.step = step
        self.reads = 0

    async def at(self, offset: int) -> Sequence[Record]:
        self.reads += 1
        first = -(-offset // self.step)
        numbers = range(first, min(first + CHUNK, len(self._places)))
        return [Record(number * self.step, self._places[number]) for number in numbers]

    def find(self, wanted: TracedRow) -> Record | None:
        value = asyncio.run(search(self.at, tell, (0, self.end), wanted))
        assert value is None or isinstance(value, Record)
        return value


def tell(record: Record) -> list[TracedRows]:
    return [] if record.place is None else [TracedRows(record.place, record.place, record)]


class Million(Sequence[TracedRow]):
    """Ten rows of each object. None is made before it is read."""

    def __len__(self) -> int:
        return 1_000_000

    @overload
    def __getitem__(self, at: int) -> TracedRow: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TracedRow]: ...

    def __getitem__(self, at: int | slice) -> TracedRow | Sequence[TracedRow]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        return TracedRow(at // 10, 0, at % 10)


def objects(count: int, rows: int) -> list[TracedRow | None]:
    return [TracedRow(number, 0, row) for number in range(count) for row in range(rows)]


def test_one_of_a_million_is_found_with_few_reads() -> None:
    log = Log(Million())
    for at in (0, 1, 499_999, 999_998, 999_999):
        log.reads = 0
        found = log.find(TracedRow(at // 10, 0, at % 10))
        assert found is not None
        assert found.offset == at
        assert log.reads <= 15


@pytest.mark.parametrize("seed", range(5))
def test_each_is_found_with_gaps_repeats_and_records_of_other_inputs(seed: int) -> None:
    draw = random.Random(seed)
    places = objects(400, 10)
    for _ in range(5):  # a crash: the last records before it come again
        at = draw.randrange(1, len(places))
        places[at:at] = places[max(0, at - draw.randrange(1, 200)) : at]
    for _ in range(2_000):
        places.insert(draw.randrange(len(places)), None)
    log = Log(places, gaps=True)
    for _ in range(50):
        wanted = TracedRow(draw.randrange(400), 0, draw.randrange(10))
        found = log.find(wanted)
        assert found is not None
        assert found.place == wanted


def test_what_is_not_there_is_not_found() -> None:
    log = Log([place for place in objects(1_000, 3) if place and place.offset != 500])
    assert log.find(TracedRow(500, 0, 1)) is None
    assert log.find(TracedRow(2_000, 0, 0)) is None
    assert Log([None] * 1_000).find(TracedRow(0, 0, 0)) is None
    assert Log([]).find(TracedRow(0, 0, 0)) is None


def test_the_end_of_an_object_is_behind_its_rows() -> None:
    assert place_of(7, 0, "-") == TracedRow(7, 0, math.inf) > place_of(7, 0, "1000000")
