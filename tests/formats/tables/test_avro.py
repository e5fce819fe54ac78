"""Avro containers: every codec, records as numbers and JSON, what stays, what is hostile."""

import bz2
import io
import json
import lzma
import random
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import orjson
import pytest

from penstock.core.rows.payload import JsonRows
from penstock.errors import Poison
from penstock.formats.runs import PIECE_BYTES, RowOptions
from penstock.formats.tables import avro
from tests.formats.support import (
    decode,
    decode_until_failure,
    elements,
    errors,
    gzipped,
    matrix,
    poison_at_most,
    rows_of,
    tar_of,
)

JSON = RowOptions(form="json")
NUMBERS = {"type": "record", "name": "n", "fields": [
    {"name": "id", "type": "long"}, {"name": "a", "type": "double"},
    {"name": "b", "type": ["null", "float"]},
]}  # fmt: skip
ROWS = [{"id": n, "a": n / 2, "b": float(-n)} for n in range(5000)]


def written(
    schema: Any, records: Iterable[Any], codec: str = "null", interval: int = 16_000
) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, sync_interval=interval)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
@pytest.mark.parametrize("key", ["x.avro", "x", "x.avro.gz", "x.tar"])
def test_every_codec_is_read_wherever_it_lies(codec: str, key: str) -> None:
    data = written(NUMBERS, ROWS, codec)
    if key.endswith("gz"):
        data = gzipped(data)
    elif key.endswith("tar"):
        data = tar_of({"a.avro": data})
    assert matrix(decode(data, key)) == [[n, n / 2, -n] for n in range(5000)]


def test_the_cut_of_the_bytes_changes_nothing() -> None:
    data = written(NUMBERS, ROWS[:300], "deflate", 500)
    assert rows_of(decode(data, "x.avro", cuts=range(len(data)))) == rows_of(decode(data, "x.avro"))


def test_records_are_json_objects_and_fields_are_chosen() -> None:
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6,
                                   "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["x", "y"]}},
        {"name": "maybe", "type": ["null", "int"]},
    ]}  # fmt: skip
    record = {
        "at": datetime(2026, 11, 21, 12, tzinfo=UTC),
        "price": Decimal("12.50"),
        "raw": b"\0\xff",
        "tags": {"a": ["b"]},
        "kind": "y",
        "maybe": None,
    }
    (row,) = elements(decode(written(schema, [record]), "x.avro", JSON))
    assert row == {
        "at": "2026-11-21T12:00:00Z",
        "price": 12.5,
        "raw": "AP8=",
        "tags": {"a": ["b"]},
        "kind": "y",
        "maybe": None,
    }
    options = RowOptions(form="json", columns=["kind", 5])
    assert elements(decode(written(schema, [record]), "x.avro", options)) == [
        {"kind": "y", "maybe": None}
    ]


def test_a_null_or_a_text_is_no_number() -> None:
    data = written(NUMBERS, [{"id": 1, "a": 1.0, "b": None}, {"id": 2, "a": 1.0, "b": 2.0}])
    runs = decode(data, "x.avro")
    assert ['"b"' in error for error in errors(runs)] == [True]
    assert matrix(decode(data, "x.avro", RowOptions(missing=0.0))) == [[1, 1, 0], [2, 1, 2]]


def test_fields_stay_with_their_row() -> None:
    rows = [row | {"a": 1.7e9 + row["id"] / 2} for row in ROWS[:3]]
    runs = decode(written(NUMBERS, rows), "x.avro", RowOptions(keep=("id",), time="a"))
    assert matrix(runs) == [[0], [-1], [-2]]
    (kept,) = [run.kept for run in runs]
    assert kept is not None
    assert kept.columns is not None
    assert kept.times is not None
    assert orjson.loads(b"[%b]" % bytes(kept.columns.body)) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert kept.times.tolist() == [1_700_000_000_000 + ms for ms in (0, 500, 1000)]


@pytest.mark.parametrize("options", [RowOptions(columns=["no"]), RowOptions(keep=("no",))])
def test_a_field_that_is_not_there_is_told(options: RowOptions) -> None:
    with pytest.raises(Poison, match='no field "no"'):
        decode(written(NUMBERS, ROWS[:3]), "x.avro", options)


def test_a_container_without_records_has_no_rows() -> None:
    assert decode(written(NUMBERS, []), "x.avro") == []


@pytest.mark.parametrize("tenth", range(1, 10))
def test_what_breaks_off_is_bad_format_and_the_blocks_before_are_read(tenth: int) -> None:
    data = written(NUMBERS, ROWS, "deflate", 2000)
    runs, failure = decode_until_failure(data[: len(data) * tenth // 10], "x.avro")
    assert failure is not None
    assert failure.code == "bad_format"
    assert matrix(runs) == [[n, n / 2, -n] for n in range(sum(run.rows for run in runs))]


def with_schema(schema: Any, codec: bytes = b"null", block: bytes = b"") -> bytes:
    out = io.BytesIO()
    out.write(avro.MAGIC)
    metadata = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, metadata)
    out.write(b"s" * 16)
    return out.getvalue() + block


def block_of(records: int, data: bytes, nbytes: int | None = None) -> bytes:
    out = io.BytesIO()
    for number in (records, len(data) if nbytes is None else nbytes):
        fastavro.schemaless_writer(out, "long", number)
    return out.getvalue() + data + b"s" * 16


def field(kind: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]}


def inner(name: str, kind: Any) -> Any:
    """A record within one of the namespace `ns`."""
    fields = [{"name": "f", "type": kind}]
    return {"type": "record", "name": name, "fields": fields}


def outer(*kinds: Any) -> Any:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "O", "namespace": "ns", "fields": fields}


EMPTY = inner("E", "null")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (with_schema(outer(inner("R", "ns.R")), block=block_of(1, b"\2")), "bad_format"),
        (with_schema(outer(inner("R", ["null", "R"]))), "bad_format"),
        (with_schema(outer({"type": "array", "items": "ns.O"})), "bad_format"),
        (with_schema(outer(EMPTY, {"type": "array", "items": "E"})), "bad_format"),
        (with_schema(outer(EMPTY, {"type": "array", "items": "ns.E"})), "bad_format"),
        (with_schema(outer({"type": "array", "items": EMPTY})), "bad_format"),
        (with_schema(outer(inner("R", "int"), "ns.R", {"type": "array", "items": "R"})), "ok"),
        (with_schema(field(["null", "r"]), block=block_of(1, b"\2" * 5_000_000)), "bad_format"),
        (with_schema(field({"type": "array", "items": "null"})), "bad_format"),
        (with_schema(field({"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}})),
         "bad_format"),
        (with_schema(field("null"), block=block_of(2**60, b"")), "bad_format"),
        (with_schema(field("int"), block=block_of(3, b"\2")), "bad_format"),
        (with_schema(field("int"), block=block_of(1, b"\2\2")), "bad_format"),
        (with_schema(field("int"), block=block_of(-1, b"\2")), "bad_format"),
        (with_schema(field("int"), block=block_of(1, b"\2", 2**40)), "bad_format"),
        (with_schema(field("int"), block=b"\xff" * 30), "bad_format"),
        (with_schema(field("bytes"), block=block_of(1, b"\xfe\xff\xff\xff\x0f")), "bad_format"),
        (with_schema("int"), "ok"),
        (with_schema(7), "bad_format"),
        (with_schema({"type": "record"}), "bad_format"),
        (with_schema(field("nonsense")), "bad_format"),
        (with_schema(field("int"), b"lzo"), "bad_format"),
        (b"Obj\1" + b"\xff" * 5_000_000, "bad_format"),
        (b"Obj\2", "bad_format"),
    ],
)  # fmt: skip
def test_hostile_containers_are_answered_by_their_code(data: bytes, code: str) -> None:
    failure = decode_until_failure(data, "x.avro", JSON)[1]
    assert (failure.code if failure else "ok") == code


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_a_bomb_is_too_large(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MOST_UNPACKED_BYTES", 100_000)
    data = written(field("bytes"), [{"f": b"\0" * 3_000_000}], codec)
    failure = decode_until_failure(data, "x.avro", JSON)[1]
    assert failure is not None
    assert failure.code == "too_large"


def test_damage_gives_rows_or_poison_and_never_another_error() -> None:
    good, draw = written(NUMBERS, ROWS[:200], "deflate", 300), random.Random(5)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        with poison_at_most():
            decode(bytes(data), "x.avro", JSON)


LISTS = {"type": "record", "name": "r", "fields": [
    {"name": "a", "type": {"type": "array", "items": "float"}}, {"name": "b", "type": "boolean"},
]}  # fmt: skip


@pytest.mark.parametrize("form", ["json", "matrix"])
def test_a_block_of_many_numbers_is_handed_on_in_pieces(form: Any) -> None:
    values = {"type": "record", "name": "n", "fields": [
        {"name": "v", "type": {"type": "array", "items": "int"}}
    ]}  # fmt: skip
    wide = [{"v": [1] * 250_000} for _ in range(40)]
    runs = decode(written(values, wide, interval=1 << 30), "a.avro", RowOptions(form=form))
    assert sum(run.rows for run in runs) == 40
    longest = max(run.payload.nbytes for run in runs if run.payload is not None)
    assert longest < 4 * PIECE_BYTES + 1_000_000


def test_a_row_of_another_width_than_the_first_is_bad() -> None:
    wide = [{"a": [1, 2], "b": True}, {"a": [3, 4], "b": False}, {"a": [1], "b": True}]
    runs = decode(written(LISTS, [*wide, wide[0]]), "x.avro")
    assert errors(runs) == ["row has 2 numbers, expected 3"]
    good = [run for run in runs if run.error is None]
    assert matrix(good) == [[1, 2, 1], [3, 4, 0], [1, 2, 1]]


def test_a_row_without_numbers_or_with_too_many_is_bad() -> None:
    empty = field({"type": "array", "items": "float"})
    data = written(empty, [{"f": []}, {"f": [1.0] * 5}, {"f": [1.0]}])
    runs = decode(data, "x.avro", RowOptions(max_columns=4))
    message = "row has {} numbers, 1 to 4 are read (limits.columns)"
    assert errors(runs) == [message.format(0), message.format(5)]


def test_decimals_keep_all_digits_and_count_as_numbers() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 5}
    value = Decimal("-1234567890123456789.12345")
    data = written(field(kind), [{"f": value}])
    (run,) = decode(data, "x.avro", JSON)
    assert isinstance(run.payload, JsonRows)
    assert bytes(run.payload.body) == b'{"f":-1234567890123456789.12345}'
    assert matrix(decode(data, "x.avro")) == [[float(np.float32(value))]]


def test_what_has_no_form_in_json_stays_with_its_row_as_null() -> None:
    kind: Any = "int"
    for _ in range(300):
        kind = {"type": "array", "items": kind}
    deep = {"type": "record", "name": "r", "fields": [
        {"name": "n", "type": "int"}, {"name": "f", "type": kind},
    ]}  # fmt: skip
    data = with_schema(deep, block=block_of(1, b"\x02" + b"\x02" * 300 + b"\x02" + b"\0" * 300))
    (run,) = decode(data, "x.avro", RowOptions(keep=("f",), time="f"))
    assert run.kept is not None
    assert run.kept.columns is not None
    assert bytes(run.kept.columns.body) == b'{"f":null}'


@pytest.mark.parametrize("kind", ["int", "long", "float", "double", "boolean"])
def test_values_of_a_schema_that_is_no_record_are_rows_of_one_number(kind: str) -> None:
    assert matrix(decode(written(kind, [1, 0, 1]), "x.avro")) == [[1], [0], [1]]


def test_what_is_no_number_in_a_schema_that_is_no_record_is_a_bad_row() -> None:
    runs = decode(written(["null", field("int")], [None, {"f": 1}]), "x.avro")
    assert [error.startswith("the row holds ") for error in errors(runs)] == [True, True]


def test_a_record_that_breaks_off_is_answered_by_the_same_text_each_time() -> None:
    data = with_schema(field("double"), block=block_of(1, b"\0" * 3))
    failure = decode_until_failure(data, "x.avro")[1]
    assert isinstance(failure, Poison)
    assert "has a record that cannot be read: EOFError" in str(failure)
    assert " at 0x" not in str(failure)


def with_value(kind: Any, value: Any, odd: bytes) -> bytes:
    """Ten records of which the sixth has `odd` as the stored value of its field `x`."""
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "v", "type": "double"}, {"name": "x", "type": kind},
        {"name": "after", "type": "string"},
    ]}  # fmt: skip
    head, parsed, records = written(schema, []), fastavro.parse_schema(schema), b""
    for number in range(10):
        row = {"v": float(number), "x": value, "after": f"s{number}"}
        whole = stored(parsed, row)
        if number == 5:
            whole = stored("double", row["v"]) + odd + stored("string", row["after"])
        records += whole
    return head + stored("long", 10) + stored("long", len(records)) + records + head[-16:]


def stored(kind: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, kind, value)
    return out.getvalue()


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


ODD: dict[str, tuple[Any, Any, bytes, str]] = {
    "24:00": (logical("int", "time-millis"), 0, stored("int", 86_400_000),
              "holds 86400000, which is no time-millis"),
    "infinity": (logical("long", "timestamp-micros"), 0, stored("long", 2**63 - 1),
                 "which is no timestamp-micros"),
    "the year 10000": (["null", logical("int", "date")], 0, b"\x02" + stored("int", 2_932_897),
                       "holds 2932897, which is no date"),
    "no UTF-8": ("string", "a", stored("bytes", b"K\xf6ln"), r"which is no text (UTF-8)"),
    "no UTF-8 inside": ({"type": "array", "items": "string"}, ["a"],
                        stored({"type": "array", "items": "bytes"}, [b"\xff"]), "no array"),
    "no UTF-8 as a key": ({"type": "map", "values": "int"}, {"a": 1},
                          b"\x02" + stored("bytes", b"\xff") + b"\x02\x00", "no map"),
    "no symbol": ({"type": "enum", "name": "e", "symbols": ["A"]}, "A", stored("int", 7),
                  "holds 7, which is no enum"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_value_that_cannot_be_makes_its_own_row_bad(name: str) -> None:
    kind, value, odd, said = ODD[name]
    data = with_value(kind, value, odd)
    runs = decode(data, "x.avro", JSON)
    assert [run.error is None for run in runs for _ in range(run.rows)] == [True] * 5 + [False] + [
        True
    ] * 4
    assert said in errors(runs)[0]
    assert 'field "x"' in errors(runs)[0]
    good: list[Any] = elements([run for run in runs if not run.error])
    assert [row["after"] for row in good] == [f"s{number}" for number in range(10) if number != 5]


@pytest.mark.parametrize("name", ODD)
def test_a_field_that_nobody_asked_for_is_not_converted(name: str) -> None:
    kind, value, odd, _ = ODD[name]
    data = with_value(kind, value, odd)
    assert matrix(decode(data, "x.avro", RowOptions(columns=["v"]))) == [[n] for n in range(10)]
    options = RowOptions(form="json", columns=["after"], keep=["v"])
    assert elements(decode(data, "x.avro", options)) == [{"after": f"s{n}"} for n in range(10)]


@pytest.mark.parametrize("name", ODD)
def test_a_kept_value_that_cannot_be_is_null(name: str) -> None:
    kind, value, odd, _ = ODD[name]
    runs = decode(with_value(kind, value, odd), "x.avro", RowOptions(columns=["v"], keep=["x"]))
    assert matrix(runs) == [[n] for n in range(10)]
    kept = runs[0].kept
    assert kept is not None
    assert kept.columns is not None
    assert bytes(kept.columns.cut(5, 6).body) == b'{"x":null}'


@pytest.mark.parametrize("text", ["", "no uuid", "00000000-0000-0000-0000-00000000ABCD"])
def test_a_uuid_is_the_text_that_it_is(text: str) -> None:
    kind = logical("string", "uuid")
    data = with_value(kind, "00000000-0000-0000-0000-000000000001", stored("string", text))
    rows: list[Any] = elements(decode(data, "x.avro", JSON))
    assert rows[5]["x"] == text


def test_types_may_be_defined_in_fields_that_nobody_asked_for() -> None:
    pair = {"type": "record", "name": "pair", "namespace": "org.x", "fields": [
        {"name": "name", "type": "string"},
        {"name": "of", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "id", "size": 2}},
    ]}  # fmt: skip
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "first", "type": pair},
        {"name": "some", "type": {"type": "map", "values": ["null", "org.x.pair"]}},
        {"name": "last", "type": {"type": "array", "items": "org.x.pair"}},
        {"name": "kind", "type": "org.x.kind"},
    ]}  # fmt: skip
    one = {"name": "n", "of": "B", "id": b"ab"}
    record = {"first": one, "some": {"k": one, "l": None}, "last": [one, one], "kind": "A"}
    right = {**one, "id": "YWI="}
    for columns, wanted in (
        (["last"], {"last": [right, right]}),
        (["kind"], {"kind": "A"}),
        (["some", "kind"], {"some": {"k": right, "l": None}, "kind": "A"}),
    ):
        options = RowOptions(form="json", columns=columns)
        assert elements(decode(written(schema, [record] * 3), "x.avro", options)) == [wanted] * 3


def test_the_records_before_damage_are_rows() -> None:
    data = with_value("string", "a", stored("long", -9))
    runs, failure = decode_until_failure(data, "x.avro", JSON)
    assert sum(run.rows for run in runs) == 5
    assert failure is not None
    assert failure.code == "bad_format"


def test_names_count_once_for_each_row_that_has_them() -> None:
    name = "n" * 20_000
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": "boolean"}]}
    data = written(schema, [{name: False}] * 50_000, "deflate")
    runs, failure = decode_until_failure(data, "x.avro", JSON)
    assert failure is not None
    assert "limits.expansion_ratio" in str(failure)
    assert sum(run.payload.nbytes for run in runs if run.payload) < 66 << 20
    assert len(matrix(decode(data, "x.avro"))) == 50_000


PACK: dict[str, Callable[[bytes], bytes]] = {
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("rest", [b"", b"\0", b"\1\2\3"])
def test_a_deflated_block_may_end_as_python_writes_it(rest: bytes) -> None:
    """Avro's library for Python leaves three bytes of zlib's checksum behind the data."""
    for codec, passes in (("deflate", True), ("bzip2", not rest), ("xz", not rest)):
        head = written(NUMBERS, [], codec)
        body = stored("long", 1) + stored("double", 1.0) + b"\0"
        packed = PACK[codec](body) + rest
        data = head + stored("long", 1) + stored("long", len(packed)) + packed + head[-16:]
        _, failure = decode_until_failure(data, "x.avro", RowOptions(missing=0.0))
        assert (failure is None) == passes
