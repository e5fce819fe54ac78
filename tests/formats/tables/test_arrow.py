"""Arrow IPC files and streams: rows, types, what breaks off, what is damaged."""

import io
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pytest

from penstock.core.rows.payload import Columns
from penstock.errors import Poison
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions, Run
from tests.formats.support import elements, matrix, poison_at_most

TABLE = pa.table(
    {
        "id": list(range(3000)),
        "name": pa.array([None if i % 5 == 0 else f"n{i % 7}" for i in range(3000)]),
        "word": pa.array([f"w{i % 3}" for i in range(3000)]).dictionary_encode(),
    }
)
WRITERS: dict[str, Callable[..., Any]] = {"x.arrow": pa.ipc.new_file, "x.arrows": pa.ipc.new_stream}
every_writer = pytest.mark.parametrize("key", WRITERS)


def written(key: str, table: Any = TABLE, compression: str | None = None) -> bytes:
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with WRITERS[key](out, table.schema, options=options) as writer:
        writer.write_table(table, 1000)
    return out.getvalue()


def runs_of(data: bytes, key: str, options: RowOptions | None = None) -> list[Run]:
    return [
        run for runs in decoded(options or RowOptions(), data, 1000, claim_of(key)) for run in runs
    ]


@every_writer
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_are_objects_in_order(key: str, compression: str | None) -> None:
    data = written(key, compression=compression)
    for name in (key, "x"):
        assert elements(runs_of(data, name, RowOptions(form="json"))) == TABLE.to_pylist()


@every_writer
def test_numbers_and_columns_are_chosen(key: str) -> None:
    runs = runs_of(written(key), key, RowOptions(columns=["id"]))
    assert matrix(runs) == [[i] for i in range(3000)]
    runs = runs_of(written(key), key, RowOptions(form="columns", columns=["word", "id"]))
    assert isinstance(runs[0].payload, Columns)
    assert runs[0].payload.batch.to_pylist()[1] == {"word": "w1", "id": 1}
    assert len({run.payload.shape for run in runs if run.payload}) == 1


def test_feather_is_the_same_file() -> None:
    out = io.BytesIO()
    pyarrow.feather.write_feather(TABLE, out)
    runs = runs_of(out.getvalue(), "x.feather", RowOptions(columns=["id"]))
    assert len(matrix(runs)) == 3000
    with pytest.raises(Poison, match="version 1"):
        runs_of(b"FEA1" + bytes(50), "x.feather")


@every_writer
def test_a_table_without_rows_has_none(key: str) -> None:
    assert runs_of(written(key, TABLE.slice(0, 0)), key) == []


@every_writer
@pytest.mark.parametrize("tenth", range(1, 10))
def test_what_breaks_off_is_bad_format(key: str, tenth: int) -> None:
    data = written(key)
    with pytest.raises(Poison) as caught:
        runs_of(data[: len(data) * tenth // 10], key, RowOptions(form="json"))
    assert caught.value.code == "bad_format"


@every_writer
def test_damage_gives_rows_or_poison_and_never_another_error(key: str) -> None:
    good, draw = written(key, TABLE.slice(0, 300)), random.Random(3)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(draw.randint(1, 5)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        with poison_at_most():
            runs_of(bytes(data), key, RowOptions(form="json"))


def test_streams_one_after_the_other_are_all_read() -> None:
    first, second = written("x.arrows", TABLE.slice(0, 10)), written("x.arrows", TABLE.slice(10))
    runs = runs_of(first + second, "x.arrows", RowOptions(form="json"))
    assert elements(runs) == TABLE.to_pylist()


@pytest.mark.parametrize(
    "behind", [b"garbage!!", written("x.arrows", pa.table({"other": [1]}))], ids=["bytes", "schema"]
)
def test_what_follows_a_stream_and_is_none_of_its_kind_is_bad_format(behind: bytes) -> None:
    with pytest.raises(Poison) as caught:
        runs_of(written("x.arrows") + behind, "x.arrows", RowOptions(form="json"))
    assert caught.value.code == "bad_format"


@every_writer
def test_a_value_that_cannot_be_makes_its_own_row_bad_and_only_if_its_column_is_asked_for(
    key: str,
) -> None:
    texts = pa.array([b"ok", b"K\xf6ln", b"fine"]).view(pa.string())
    table = pa.table({"id": [1, 2, 3], "s": texts, "t": pa.array([0, 1, 2**40], pa.time64("us"))})
    data = written(key, table)
    assert matrix(runs_of(data, key, RowOptions(columns=["id"]))) == [[1], [2], [3]]
    runs = runs_of(data, key, RowOptions(form="json", columns=["id", "s"]))
    assert [run.error for run in runs] == [None, 'column "s" holds text that is not UTF-8', None]
    assert elements([run for run in runs if run.payload]) == [
        {"id": 1, "s": "ok"}, {"id": 3, "s": "fine"}
    ]  # fmt: skip
    runs = runs_of(data, key, RowOptions(form="columns"))
    assert [run.error is None for run in runs] == [True, False, False]


def interval(unit: int) -> bytes:
    """A stream with a column of intervals of months (0) or of days (1), which pyarrow cannot make:
    the unit of its own kind of intervals (2) is replaced in the schema.
    """
    months = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    data = written("x.arrows", pa.table({"m": months, "v": [1.0]}))
    for place in range(len(data)):
        found = data[:place] + bytes([unit]) + data[place + 1 :] if data[place] == 2 else b""
        with suppress(pa.ArrowException, OSError, IndexError):
            schema = pa.ipc.open_stream(found).schema if found else None
            if schema is not None and str(schema.types[0]) in (
                "month_interval",
                "day_time_interval",
            ):
                return found
    raise AssertionError("the layout of the schema has changed")


@pytest.mark.parametrize("unit", [0, 1])
def test_a_type_that_is_not_read_is_named_with_its_column(unit: int) -> None:
    for form in ("matrix", "json", "columns"):
        with pytest.raises(Poison, match=r'column "m" holds .*_interval, .*rows\.columns'):
            runs_of(interval(unit), "x.arrows", RowOptions(form=form))
    assert matrix(runs_of(interval(unit), "x.arrows", RowOptions(columns=["v"]))) == [[1]]


@pytest.mark.parametrize("columns", [1, 2, 5, 200])
def test_a_stream_of_before_2019_is_read(columns: int) -> None:
    """Before version 0.15 of Arrow, messages of a stream began with their length."""
    table = pa.table({f"c{number}": [1.5, 2.5] for number in range(columns)})
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    runs = runs_of(out.getvalue(), "x.arrows")
    assert matrix(runs) == [[1.5] * columns, [2.5] * columns]
