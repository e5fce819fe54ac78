"""gzip: members, padding, damage, bombs."""

import zlib

import pytest

from consumers.errors import Poison
from consumers.formats.base import RowOptions
from consumers.formats.registry import open_decoder
from tests.formats.support import decode, decode_until_failure, gzipped, matrix

ROWS = b"1,2\n" * 100


def test_members_one_after_the_other_are_one_file() -> None:
    assert len(matrix(decode(gzipped(ROWS) * 3 + b"\0" * 700, "x.csv.gz"))) == 300


def test_a_row_may_go_on_in_the_next_member() -> None:
    assert matrix(decode(gzipped(b"1,2\n3,") + gzipped(b"4\n"), "x.csv.gz")) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzipped(ROWS)[:-4], "ends early"),
        (gzipped(ROWS) + b"\x1f", "ends early"),
        (gzipped(ROWS) + b"garbage", "not gzip"),
        (gzipped(ROWS) + b"\0\0garbage", "not gzip"),
        (gzipped(ROWS)[:-6] + b"xx" + gzipped(ROWS)[-4:], "damaged"),
        (gzipped(ROWS)[:10] + b"\xff" * 20, "damaged"),
    ],
)
def test_damage_is_a_bad_format_that_says_which(data: bytes, message: str) -> None:
    with pytest.raises(Poison, match=message) as failure:
        decode(data, "x.csv.gz")
    assert failure.value.code == "bad_format"


def test_the_rows_before_the_damage_are_read() -> None:
    rows = b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000))
    damaged = gzipped(rows)[:-8] + b"\0" * 8
    runs, failure = decode_until_failure(damaged, "x.csv.gz")
    assert failure is not None
    assert len(matrix(runs)) == 5000


def test_a_bomb_stops_at_the_expansion_ratio() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    packed = b"".join(bomb.compress(b"1,2\n" * (1 << 18)) for _ in range(64)) + bomb.flush()
    runs, failure = decode_until_failure(packed, "x.csv.gz", RowOptions(expansion_ratio=100))
    assert failure is not None
    assert failure.code == "too_large"
    assert "limits.expansion_ratio" in str(failure)
    assert sum(run.rows for run in runs) <= 16 << 18
    assert decode_until_failure(packed, "x.csv.gz", RowOptions(expansion_ratio=1100))[1] is None


def test_what_may_expand_is_to_be_fed_in_smaller_steps() -> None:
    plain = open_decoder(RowOptions(), key="x.csv")
    packed = open_decoder(RowOptions(), key="x.csv.gz")
    assert packed.step_bytes < plain.step_bytes
    smaller = packed.step_bytes
    plain.feed(gzipped(ROWS))
    packed.feed(ROWS)
    assert plain.step_bytes == smaller
    assert packed.step_bytes > smaller
