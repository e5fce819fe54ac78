"""`rows.keep` and `rows.time`: what stays with a row of each format, and nothing unless asked."""

import io
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.rows.payload import NO_TIME, Form, JsonRows, Kept
from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import Notices, RowOptions, Run
from tests.formats.support import elements, matrix

NOON = 1_795_262_400_000


def csv(rows: list[dict[str, Any]]) -> bytes:
    lines = [",".join(rows[0])]
    lines += [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    return "\n".join(lines).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=2)
    return out.getvalue()


def stream(rows: list[dict[str, Any]]) -> bytes:
    table, out = pa.Table.from_pylist(rows), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "x.csv": csv,
    "x.ndjson": lambda rows: b"\n".join(map(orjson.dumps, rows)),
    "x.json": lambda rows: b" " * 600 + orjson.dumps(rows),
    "x.parquet": parquet,
    "x.arrow": stream,
}
every_format = pytest.mark.parametrize("key", WRITERS)
ROWS = [
    {"id": n, "who": None if n == 3 else f'n"{n}', "at": NOON + n, "a": n * 0.5, "b": -n}
    for n in range(5)
]


def runs_of(data: bytes, key: str, options: RowOptions) -> list[Run]:
    return [run for runs in decoded(options, data, 7, claim_of(key)) for run in runs]


def kept_of(runs: list[Run]) -> list[tuple[Any, int | None]]:
    found: list[tuple[Any, int | None]] = []
    for run in runs:
        kept = run.kept
        for row in range(run.rows):
            if kept is None:
                found.append((None, None))
                continue
            columns = None
            if kept.columns is not None:
                columns = orjson.loads(bytes(kept.columns.cut(row, row + 1).body))
            times = kept.times
            at = None if times is None or times[row] == NO_TIME else int(times[row])
            found.append((columns, at))
    return found


@every_format
def test_columns_and_time_stay_with_their_row_and_do_not_reach_the_model(key: str) -> None:
    rows = [row | {"who": "x"} for row in ROWS]
    options = RowOptions(keep=("id", "who"), time="at")
    runs = runs_of(WRITERS[key](rows), key, options)
    assert matrix(runs) == [[n * 0.5, -n] for n in range(5)]
    assert kept_of(runs) == [({"id": n, "who": "x"}, NOON + n) for n in range(5)]


@every_format
def test_a_column_can_stay_and_be_given_too(key: str) -> None:
    options = RowOptions(keep=("id",), columns=["a", "id"])
    runs = runs_of(WRITERS[key]([row | {"who": "x"} for row in ROWS]), key, options)
    assert matrix(runs) == [[n * 0.5, n] for n in range(5)]
    assert kept_of(runs) == [({"id": n}, None) for n in range(5)]


DEEP = b"[" * 1_000 + b"]" * 1_000


@pytest.mark.parametrize("form", ["json", "matrix"])
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"18446744073709551617", b"18446744073709551617"),
        (b"0.10000000000000000001", b"0.10000000000000000001"),
        (b'[1, {"b": "c\\n"}]', b'[1, {"b": "c\\n"}]'),
        (b"[1,\r\n2]", b"[1,  2]"),
        (DEEP, b"null"),
    ],
)
def test_a_kept_value_of_json_stays_as_it_came(form: Form, value: bytes, kept: bytes) -> None:
    data = b'[ {"id": %b, "a": 1, "at": 1700000000} , {"a": 2}, {"id": 7, "a": 3}]' % value
    options = RowOptions(form=form, keep=("id",), columns=["a"], time="at")
    runs = runs_of(data, "x.json", options)
    found = [run.kept.columns for run in runs if run.kept is not None]
    body = b",".join(bytes(columns.body) for columns in found if columns is not None)
    assert body == b'{"id":%b},{"id":null},{"id":7}' % kept
    assert [at for _, at in kept_of(runs)] == [1_700_000_000_000, None, None]


@pytest.mark.parametrize(("levels", "is_kept"), [(254, True), (255, False), (980, False)])
def test_a_kept_value_of_more_levels_than_readers_take_is_null(levels: int, is_kept: bool) -> None:
    """Python's own library fails from some 990 on."""
    value = b"[" * levels + b"1" * 30 + b"]" * levels
    row = b'{"a": 1, "v": %b, "w": "%b"}' % (value, b"[" * 300)
    (run,) = runs_of(row, "x.ndjson", RowOptions(keep=("v", "w")))
    assert run.kept is not None
    assert run.kept.columns is not None
    kept = bytes(run.kept.columns.cut(0, 1).body)
    assert kept == b'{"v":%b,"w":"%b"}' % (value if is_kept else b"null", b"[" * 300)


@pytest.mark.parametrize("cell", [b"1\r", b'"\r1 \r "', b'"1\r2"'])
def test_a_kept_cell_is_part_of_a_line(cell: bytes) -> None:
    """For some readers of JSON lines a carriage return ends a line."""
    (run,) = runs_of(b"a,b\n%b,2\n" % cell, "x.csv", RowOptions(keep=["a"]))
    assert run.kept is not None
    assert run.kept.columns is not None
    kept = bytes(run.kept.columns.body)
    assert b"\r" not in kept
    assert orjson.loads(kept) == {"a": "1\r2" if b"2" in cell else 1}


@pytest.mark.parametrize("key", ["x.parquet", "x.ndjson", "x.arrow"])
def test_a_null_stays_null(key: str) -> None:
    options = RowOptions(keep=("who",), columns=["a"])
    kept = kept_of(runs_of(WRITERS[key](ROWS), key, options))
    assert [columns["who"] for columns, _ in kept] == ['n"0', 'n"1', 'n"2', None, 'n"4']


def test_a_bad_row_takes_nothing_from_its_neighbours() -> None:
    data = b"id,a\n1,1\n2,x\n3,3\n4,4,4\n5,5\n"
    runs = runs_of(data, "x.csv", RowOptions(keep=("id",)))
    assert [run.error is None for run in runs] == [True, False, True, False, True]
    assert [one[0] for one in kept_of(runs)] == [{"id": 1}, None, {"id": 3}, None, {"id": 5}]
    lines = b'{"id":1,"a":1}\n{"id":2,"a":"x"}\n[7]\n{"id":3,"a":3}\n'
    runs = runs_of(lines, "x.ndjson", RowOptions(keep=("id",)))
    good = [run for run in runs if run.error is None]
    assert [one[0] for one in kept_of(good)] == [{"id": 1}, {"id": 3}]


def test_json_rows_are_handed_on_as_they_came() -> None:
    runs = runs_of(b'{"id":1,"a":2}\n[3]\n', "x.ndjson", RowOptions(form="json", keep=("id", "no")))
    assert elements(runs) == [{"id": 1, "a": 2}, [3]]
    assert [one[0] for one in kept_of(runs)] == [{"id": 1, "no": None}, {"id": None, "no": None}]


@pytest.mark.parametrize("key", ["x.csv", "x.parquet", "x.arrow"])
def test_a_column_that_is_not_there_is_told(key: str) -> None:
    for options in (RowOptions(keep=("nope",)), RowOptions(time="nope")):
        with pytest.raises(Poison, match="nope") as caught:
            runs_of(WRITERS[key](ROWS), key, options)
        assert caught.value.code == "bad_format"


def test_without_the_setting_nothing_is_kept() -> None:
    for key, write in WRITERS.items():
        assert all(run.kept is None for run in runs_of(write(ROWS), key, RowOptions(columns=["a"])))


@every_format
def test_a_time_that_cannot_be_read_is_left_out_and_told_once(key: str) -> None:
    told: list[str] = []
    options = RowOptions(columns=["a"], time="at", notices=Notices(told.append))
    rows = [
        row | {"who": "x", "at": at} for row, at in zip(ROWS, [45292, 7, 8, 9, 10], strict=True)
    ]
    kept = kept_of(runs_of(WRITERS[key](rows), key, options))
    assert [at for _, at in kept] == [None] * 5
    (reason,) = told
    assert reason == (
        'rows.time = "at": a value of the column is too small a number to tell its unit; give '
        "epoch milliseconds or ISO-8601. Its row has the event_time of its reference"
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_s_own_times_are_exact(unit: str) -> None:
    at = pa.array([NOON, None], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    day = pa.array([20_000, None], pa.date32())
    table = pa.table({"at": at, "day": day, "a": [1, 2]})
    out = io.BytesIO()
    pq.write_table(table, out)
    for name, expected in (("at", NOON), ("day", 20_000 * 86_400_000)):
        runs = runs_of(out.getvalue(), "x.parquet", RowOptions(time=name, columns=["a"]))
        assert [time for _, time in kept_of(runs)] == [expected, None]


def test_into_a_record_the_own_time_takes_the_place_of_the_reference_s() -> None:
    kept = Kept.of([b'{"id":7}', b'{"id":8}'], [NOON, None])
    record = b'{"stream":",\\"event_time\\":1","event_time":1,"prediction":{"event_time":1}}'
    first = orjson.loads(kept.into(record, 0, b"1"))
    assert first == orjson.loads(record) | {"event_time": NOON, "columns": {"id": 7}}
    second = orjson.loads(kept.into(record, 1, b"1"))
    assert second == orjson.loads(record) | {"columns": {"id": 8}}
    bare = orjson.loads(kept.into(b'{"row":0}', 0, None))
    assert bare == {"row": 0, "event_time": NOON, "columns": {"id": 7}}


def test_what_is_kept_is_cut_as_rows_are() -> None:
    kept = Kept.of([b'{"a":%d}' % n for n in range(4)], range(4))
    part = kept.cut(1, 3)
    assert isinstance(part.columns, JsonRows)
    assert (bytes(part.columns.body), part.times is not None and part.times.tolist()) == (
        b'{"a":1},{"a":2}',
        [1, 2],
    )
