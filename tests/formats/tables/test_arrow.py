"""Arrow IPC files and streams: rows, types, what breaks off, what is damaged."""

import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pytest

from penstock.core.rows.payload import Columns
from penstock.errors import Poison
from penstock.formats.base.reading import decoded
from penstock.formats.base.runs import RowOptions, Run
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
    return [run for runs in decoded(options or RowOptions(), data, 1000, key=key) for run in runs]


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
