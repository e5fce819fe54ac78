"""Parquet by its parts: what its rows are, what is fetched, and what hostile footers get."""

import io
import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.rows.payload import Columns
from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of, formats
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import Need, RangedSource, Wanted
from penstock.formats.tables import parquet
from tests.formats.support import (
    by_ranges,
    elements,
    gzipped,
    matrix,
    poison_at_most,
    rows_of,
    tar_of,
)

JSON = RowOptions(form="json")


def written(table: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def runs_of(
    data: bytes,
    options: RowOptions | None = None,
    wanted: Wanted = lambda start, stop: True,
    fetched: list[Need] | None = None,
) -> list[Run]:
    steps = by_ranges(options or RowOptions(), formats()["parquet"], data, wanted, fetched)
    return [run for runs in steps for run in runs]


def code_of(data: bytes, options: RowOptions | None = None) -> str:
    with pytest.raises(Poison) as caught:
        runs_of(data, options)
    return caught.value.code


NUMBERS = pa.table({"a": [1, 2, 3], "b": [0.5, float("nan"), -1e300], "c": [True, False, True]})
# More than the tail in each row group, so that each has to be fetched.
LARGE = pa.table({f"c{i}": np.random.default_rng(i).normal(size=20_000) for i in range(4)})


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_codec_and_page_version_is_read(compression: str, version: str) -> None:
    data = written(LARGE, compression=compression, data_page_version=version, row_group_size=7000)
    values = np.array(matrix(runs_of(data)), np.float32)
    assert np.array_equal(
        values, np.column_stack([c.to_numpy() for c in LARGE.columns]).astype("f")
    )


def test_numbers_become_float32() -> None:
    assert rows_of(runs_of(written(NUMBERS))) == [
        (None, [1, 0.5, 1]),
        (None, [2, "nan", 0]),
        (None, [3, float("-inf"), 1]),
    ]


def test_columns_are_chosen_by_name_and_by_place_and_the_others_not_fetched() -> None:
    data = written(LARGE, row_group_size=20_000, compression="none")
    options = RowOptions(columns=["c3", 0])
    fetched: list[Need] = []
    values = np.array(matrix(runs_of(data, options, fetched=fetched)))
    assert np.array_equal(values[:, 1], LARGE["c0"].to_numpy().astype("f"))
    assert np.array_equal(values[:, 0], LARGE["c3"].to_numpy().astype("f"))
    assert sum(need.stop - need.start for need in fetched) < len(data) * 0.6


@pytest.mark.parametrize("options", [RowOptions(columns=["nope"]), RowOptions(columns=[7])])
def test_a_column_that_is_not_there_is_told(options: RowOptions) -> None:
    with pytest.raises(Poison, match="it has a, b, c"):
        runs_of(written(NUMBERS), options)


def test_a_column_of_texts_is_no_number() -> None:
    with pytest.raises(Poison, match='column "s" holds string'):
        runs_of(written(pa.table({"s": ["x"]})))


def test_a_null_is_a_bad_row_unless_it_stands_for_something() -> None:
    data = written(pa.table({"a": [1, None, 3, 4], "b": [1.0, 2.0, None, 4.0]}))
    runs = runs_of(data)
    assert [(run.rows, run.error is None) for run in runs] == [(1, True), (2, False), (1, True)]
    assert matrix(runs_of(data, RowOptions(missing=-1.0))) == [[1, 1], [-1, 2], [3, -1], [4, 4]]


def test_vectors_of_fixed_length_are_numbers_side_by_side() -> None:
    vectors = pa.array([[1, 2], [3, None], None, [7, 8]], pa.list_(pa.float32(), 2))
    runs = runs_of(written(pa.table({"v": vectors, "id": [1, 2, 3, 4]})))
    assert [(run.rows, run.error is None) for run in runs] == [(1, True), (2, False), (1, True)]
    assert matrix([run for run in runs if run.error is None]) == [[1, 2, 1], [7, 8, 4]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view])
def test_lists_of_equal_length_are_numbers_side_by_side(kind: Any) -> None:
    """As pandas and Spark write embeddings. The first list that has items tells the length."""
    rows = [None, [], [1, 2], [3, 4], [5, None], [6, 7, 8], [9, 10]]
    ids = pa.array(range(7), pa.int8())
    table = pa.table({"v": pa.array(rows, kind(pa.float64())), "id": ids})
    for data in (written(table, row_group_size=2), written(table)):
        runs = runs_of(data)
        assert matrix([run for run in runs if not run.error]) == [[1, 2, 2], [3, 4, 3], [9, 10, 6]]
        why = [run.error for run in runs for _ in range(run.rows)]
        null = "a value is null, no number (see rows.missing)"
        other = why[5]
        assert other is not None
        assert 'column "v"' in other
        assert why == [null, why[1], None, None, null, other, None]
        assert why[1] in (other, 'column "v" has an empty list')
    filled = runs_of(written(table.slice(2, 5)), RowOptions(missing=-1.0))
    assert matrix([run for run in filled if not run.error])[2] == [5, -1, 4]


def test_a_list_of_fixed_length_that_is_null_is_missing_as_a_whole() -> None:
    vectors = pa.array([[1, 2], None, [3, None]], pa.list_(pa.float32(), 2))
    runs = runs_of(written(pa.table({"v": vectors})), RowOptions(missing=-1.0))
    assert matrix(runs) == [[1, 2], [-1, -1], [3, -1]]


def test_the_first_list_decides_even_if_its_row_is_not_wanted() -> None:
    lists = pa.array([[1, 2], [1, 2], [1, 2, 3], [1, 2]], pa.list_(pa.float32()))
    data = written(pa.table({"v": lists}), row_group_size=2)
    runs = runs_of(data, wanted=lambda start, stop: stop > 2)
    assert [run.rows for run in runs if run.error] == [1]
    assert matrix(runs[-1:]) == [[1, 2]]


def test_lists_that_are_too_long_together_are_refused() -> None:
    lists = pa.array([[1] * 60], pa.list_(pa.float32()))
    data = written(pa.table({"a": lists, "b": lists}))
    with pytest.raises(Poison, match="a row has 120 numbers"):
        runs_of(data, RowOptions(max_columns=100))


def test_json_rows_are_objects_and_what_has_no_form_in_json_is_defined() -> None:
    moment = datetime(2026, 11, 21, 12, 0, 0, 123456, UTC)
    table = pa.table(
        {
            "n": pa.array([2**60], pa.int64()),
            "f": [0.1],
            "inf": [float("inf")],
            "none": pa.nulls(1),
            "s": ['q"\\\n'],
            "d": [Decimal("12.50")],
            "day": [date(2026, 11, 21)],
            **{
                f"at_{unit}": pa.array([moment], pa.timestamp("us", "UTC")).cast(
                    pa.timestamp(unit, "UTC"), safe=False
                )
                for unit in ("s", "ms", "us", "ns")
            },
            "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
            "took": pa.array([timedelta(seconds=2)], pa.duration("ms")),
            "raw": [b"\0\xff"],
            "nested": [{"x": [1, None], "y": b"a"}],
            "word": pa.array(["red"]).dictionary_encode(),
        }
    )
    (row,) = elements(runs_of(written(table), JSON))
    assert row == {
        "n": 2**60,
        "f": 0.1,
        "inf": None,
        "none": None,
        "s": 'q"\\\n',
        "d": 12.5,
        "day": "2026-11-21",
        "at_s": "2026-11-21T12:00:00.000Z",  # Parquet has no seconds
        "at_ms": "2026-11-21T12:00:00.123Z",
        "at_us": "2026-11-21T12:00:00.123456Z",
        "at_ns": "2026-11-21T12:00:00.123456000Z",
        "local": "2026-11-21T12:00:00.123456",
        "took": 2000,
        "raw": "AP8=",
        "nested": {"x": [1, None], "y": "YQ=="},
        "word": "red",
    }


def test_times_of_int96_are_those_that_were_written_whatever_the_century() -> None:
    moments = [
        datetime(1500, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        None,
    ]
    table = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))})
    data = written(table, use_deprecated_int96_timestamps=True)
    assert elements(runs_of(data, JSON)) == [
        {"at": "1500-01-01T00:00:00.000000"},
        {"at": "9999-12-31T23:59:59.999999"},
        {"at": None},
    ]
    (run,) = runs_of(data, RowOptions(form="columns"))
    assert isinstance(run.payload, Columns)
    assert run.payload.batch.to_pydict() == {
        "at": [moment and moment.replace(tzinfo=None) for moment in moments]
    }


def test_json_rows_can_be_cut_anywhere() -> None:
    table = pa.table({"a": list(range(50)), "b": [None if i % 3 else f"x{i}" for i in range(50)]})
    runs = runs_of(written(table, row_group_size=20), JSON)
    assert elements(runs) == [orjson.loads(bytes(text)) for _, text in rows_of(runs)]  # type: ignore[call-overload]
    assert elements(runs) == table.to_pylist()


def test_a_json_row_above_the_limit_is_bad_alone() -> None:
    data = written(pa.table({"s": ["a", "b" * 500, "c"]}))
    runs = runs_of(data, RowOptions(form="json", row_bytes=100))
    assert [run.error is None for run in runs] == [True, False, True]


def test_columns_are_handed_on_as_they_came() -> None:
    runs = runs_of(written(NUMBERS), RowOptions(form="columns", columns=["c", "a"]))
    (payload,) = [run.payload for run in runs]
    assert isinstance(payload, Columns)
    assert payload.batch.to_pydict() == {"c": [True, False, True], "a": [1, 2, 3]}


def test_row_groups_that_nobody_wants_are_counted_and_not_fetched() -> None:
    data = written(LARGE, row_group_size=1000, compression="none")
    fetched: list[Need] = []
    runs = runs_of(data, wanted=lambda start, stop: start < 6000 and stop > 5500, fetched=fetched)
    assert sum(run.rows for run in runs) == LARGE.num_rows
    assert sum(run.rows for run in runs if run.payload is not None) == 1000
    assert sum(need.stop - need.start for need in fetched) < len(data) / 10
    at = sum(run.rows for run in runs[: next(i for i, r in enumerate(runs) if r.payload)])
    assert at == 5000


def test_a_huge_row_group_is_read_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BUFFER_BYTES", 1 << 16)
    data = written(LARGE, compression="none", data_page_size=4096, use_dictionary=False)
    fetched: list[Need] = []
    assert len(matrix(runs_of(data, fetched=fetched))) == LARGE.num_rows
    assert max(need.stop - need.start for need in fetched) <= 1 << 18


def test_small_neighbours_are_fetched_together() -> None:
    data = written(LARGE, row_group_size=50, compression="none")
    fetched: list[Need] = []
    assert len(matrix(runs_of(data, fetched=fetched))) == LARGE.num_rows
    assert len(fetched) < 10


@pytest.mark.parametrize("table", [NUMBERS.slice(0, 0), pa.table({"a": pa.array([], pa.int8())})])
def test_a_table_without_rows_has_none(table: Any) -> None:
    assert runs_of(written(table)) == []


def test_a_table_without_columns_is_bad_format() -> None:
    assert code_of(written(pa.table({}))) == "bad_format"


def test_it_is_known_by_name_and_by_its_first_bytes() -> None:
    data = written(NUMBERS)
    for key in ("x.parquet", "x.PQ", "x"):
        runs = [run for step in decoded(RowOptions(), data, 100, claim_of(key)) for run in step]
        assert len(runs) == 1, key
    [runs] = decoded(RowOptions(), b"PAR1,b\n3,4\n", 100, claim_of("x.csv", "csv"))
    assert matrix(runs) == [[3, 4]]


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("x.parquet.gz", gzipped(written(NUMBERS))),
        ("x.gz", gzipped(written(NUMBERS))),
    ],
)
def test_inside_gzip_it_is_refused_with_the_reason(key: str, data: bytes) -> None:
    with pytest.raises(Poison, match="by its parts") as caught:
        list(decoded(RowOptions(), data, 100, claim_of(key)))
    assert caught.value.code == "bad_format"


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz"])
def test_inside_an_archive_it_is_one_bad_row_and_its_neighbours_are_read(name: str) -> None:
    body = written(NUMBERS)
    members = {
        "1.csv": b"1,2\n",
        name: gzipped(body) if name.endswith(".gz") else body,
        "2.csv": b"3,4\n",
    }
    runs = [
        run
        for some in decoded(RowOptions(), tar_of(members), 100, claim_of("x.tar"))
        for run in some
    ]
    assert [(run.member, run.rows) for run in runs] == [("1.csv", 1), (name, 1), ("2.csv", 1)]
    assert "by its parts" in str(runs[1].error)


def with_footer_length(data: bytes, length: int) -> bytes:
    return data[:-8] + struct.pack("<I", length) + data[-4:]


GOOD = written(LARGE.slice(0, 2000), row_group_size=500)


@pytest.mark.parametrize("tenth", range(10))
def test_a_file_that_breaks_off_is_bad_format(tenth: int) -> None:
    cut = GOOD[: len(GOOD) * tenth // 10]
    if cut:
        assert code_of(cut) == "bad_format"
    else:
        assert runs_of(cut) == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"PAR1", "bad_format"),
        (b"PAR1PAR1", "bad_format"),
        (b"PAR1" + bytes(4) + b"PAR1", "bad_format"),
        (GOOD[:-4] + b"PARE", "bad_format"),
        (with_footer_length(GOOD, 0), "bad_format"),
        (with_footer_length(GOOD, 2**32 - 1), "bad_format"),
        (with_footer_length(GOOD, len(GOOD) - 12), "bad_format"),
        (b"\0" * 5000 + GOOD[-3000:], "bad_format"),
        (GOOD[:4] + b"\xff" * 3000 + GOOD[3004:], "bad_format"),
    ],
)
def test_a_hostile_footer_is_answered_by_its_code(data: bytes, code: str) -> None:
    assert code_of(data) == code


def test_a_footer_that_is_too_large_is_not_fetched() -> None:
    size = parquet.MOST_FOOTER_BYTES + 100
    end = struct.pack("<I", size - 12) + b"PAR1"
    fetched: list[Need] = []

    def fetch(need: Need) -> bytes:
        fetched.append(need)
        return b""

    source = RangedSource(size, end, fetch)
    with pytest.raises(Poison) as caught:
        list(parquet.read_parquet(source, RowOptions(), lambda a, b: True))
    assert not fetched
    assert caught.value.code == "too_large"


def test_damage_gives_rows_or_poison_and_never_another_error() -> None:
    draw = random.Random(7)
    for _ in range(300):
        data = bytearray(GOOD)
        for _ in range(draw.randint(1, 6)):
            start = draw.randrange(len(data))
            data[start] = draw.randrange(256)
        for at in range(len(GOOD) - 2000, len(GOOD)):
            if draw.random() < 0.001:
                data[at] ^= 1 << draw.randrange(8)
        with poison_at_most():
            runs_of(bytes(data))


def test_a_bad_row_fails_the_object_if_so_configured() -> None:
    data = written(pa.table({"a": [1, None, 3]}))
    with pytest.raises(Poison, match="row 1: ") as caught:
        runs_of(data, RowOptions(fail_on_bad_row=True))
    assert caught.value.code == "bad_row"
