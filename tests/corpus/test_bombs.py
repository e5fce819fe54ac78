"""What unpacks to far more than it is: stopped early, and never held.

Counted are bytes, not seconds: what is inflated before a bomb is refused bounds the time.
"""

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from penstock.errors import ErrorCode, Poison
from penstock.formats.archives.tar import TarParser
from penstock.formats.archives.unpacking import Expansion, GzipParser
from penstock.formats.parser_chain import Members, Parser
from penstock.formats.runs import RowOptions, Run
from penstock.tools.simulation.virtual_time import virtual_time
from tests.corpus.archives import BOMBS, MIB, archive_of_bombs, member, packed, zeros
from tests.corpus.cases import Stored
from tests.corpus.running import check_answer

PEAK_BYTES = 50 * MIB


@pytest.mark.parametrize("case", BOMBS, ids=lambda case: case.name)
@virtual_time
async def test_a_bomb_costs_its_neighbours_nothing_and_less_than_50_mb(case: Stored) -> None:
    case.body()  # made once before, so that making it is not counted
    gc.collect()
    tracemalloc.start()
    try:
        await check_answer(case, "json")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < PEAK_BYTES


class Counting(Parser):
    """Takes bytes and makes no rows of them."""

    step_bytes = 1 << 20
    damage: ErrorCode = "bad_format"

    def __init__(self) -> None:
        self.taken_bytes = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        self.taken_bytes += len(data)
        return iter(())

    def close(self) -> Iterator[Run]:
        return iter(())


def inflated_until_refused(parser: Parser, counting: Counting, data: bytes) -> int:
    def feed() -> None:
        for start in range(0, len(data), parser.step_bytes):
            list(parser.feed(data[start : start + parser.step_bytes]))

    with pytest.raises(Poison) as refused:
        feed()
    assert refused.value.code == "too_large"
    return counting.taken_bytes


@pytest.mark.parametrize("mib", [42, 200])
def test_no_more_is_inflated_than_is_free_of_the_ratio(mib: int) -> None:
    counting = Counting()
    parser = GzipParser(counting, Expansion(RowOptions()), limit_bytes=None)
    assert inflated_until_refused(parser, counting, zeros(mib)) <= 16 * MIB


class Packed(Members):
    """Members that are all packed."""

    def __init__(self, inner: Parser, expansion: Expansion) -> None:
        self._inner, self._expansion = inner, expansion

    def open(self, path: str) -> Parser:
        return GzipParser(self._inner, self._expansion, limit_bytes=None)

    def end(self) -> Iterator[Run]:
        return iter(())


def test_many_small_bombs_in_a_packed_archive_are_one_bomb() -> None:
    counting = Counting()
    options = RowOptions()
    whole = Expansion(options)
    members = Expansion(options, outer=whole)
    archive = TarParser(options, Packed(counting, members))
    parser = GzipParser(archive, whole, limit_bytes=None)
    assert inflated_until_refused(parser, counting, archive_of_bombs()) <= 16 * MIB


def test_packed_members_count_for_the_archive_they_are_packed_in() -> None:
    """Members that grow 150 times, in an archive that is packed to a tenth: 1,500 in all."""
    counting = Counting()
    options = RowOptions()
    whole = Expansion(options)
    members = Expansion(options, outer=whole)
    archive = TarParser(options, Packed(counting, members))
    parser = GzipParser(archive, whole, limit_bytes=None)
    small = packed(random.Random(1).randbytes(7_000) + bytes(MIB - 7_000))
    data = packed(b"".join(member(b"%d.csv.gz" % i, small) for i in range(300)))
    assert inflated_until_refused(parser, counting, data) <= 150 * MIB
