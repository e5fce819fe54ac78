"""What a decoder that was taken over may say: the worker believes none of it."""

import os
import struct
import tracemalloc
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.rows.payload import (
    NO_TIME,
    BytesRows,
    Columns,
    JsonRows,
    Kept,
    Matrix,
    schema_key,
)
from penstock.decoders import arrow_messages
from penstock.decoders.packing import (
    _ENCODER,
    MOST_RUNS,
    _Head,
    end_and_rest,
    packed,
    unpacked,
    with_end,
)
from penstock.decoders.socket_messages import (
    INBOX_BYTES,
    OUTBOX_BYTES,
    Box,
    boxes,
    new_boxes,
    placed,
)
from penstock.decoders.socket_messages import heard as heard_by
from penstock.formats.runs import Pieces, Run
from penstock.messages.times import EARLIEST_MS, LATEST_MS

# Any `ValueError` makes an end of the decoder; what it says is for the log.
REFUSED = "."
MOST_ROWS = 2**63
MOST_ROW_BYTES = 1 << 30


def heard(*runs: Run) -> list[Run]:
    return said(b"".join(packed(runs)))


def said(message: bytes) -> list[Run]:
    return [run for run in unpacked(memoryview(message), MOST_ROWS, MOST_ROW_BYTES) if run]


def texts(body: bytes, *ends: int) -> JsonRows:
    return JsonRows(body, np.array(ends, "<i8"))


def opaque(body: bytes, *ends: int) -> BytesRows:
    return BytesRows(body, np.array(ends, "<i8"))


@pytest.mark.parametrize(
    "rows",
    [
        texts(b'["x"],["y"]', 11),
        texts(b'["p","q"]', 4, 9),
        texts(b"[1,2],3", 2, 7),
        texts(b"1,[2,3]", 4, 7),
        texts(b'"a,b",1', 2, 7),
        texts(b"1,2", 1, 2),
        texts(b"1 2", 1, 3),
        texts(b'{"a":1', 6),
        texts(b"1],[2", 2, 5),
        texts(b"1", 0, 1),
        texts(b'"\xff"', 3),
        texts(b"[" * 5_000 + b"]" * 5_000, 10_000),
        texts(b"[" * 1_000 + b"]" * 1_000 + b",\xef\xbb\xbf1", 2_000, 2_005),
        texts(b"1,2", -(2**63) + 1, 2**63 - 1, 3),
    ],
    ids=lambda rows: str(bytes(rows.body[:12])),
)
def test_texts_that_are_no_json_values_are_refused(rows: JsonRows) -> None:
    number = len(rows.ends)
    as_kept = Run(number, Matrix(np.ones((number, 1), np.float32)), kept=Kept(rows, None))
    for run in (Run(number, rows), as_kept):
        with pytest.raises(ValueError, match=REFUSED):
            heard(run)


@pytest.mark.parametrize(
    "rows",
    [
        texts(b'1, {"a": 2} ,3', 1, 12, 14),
        texts(b"[1],[2]", 3, 7),
        texts(b'"a,b", "c]"', 5, 11),
        texts(b"1", 1),
        texts(b"[" * 1_000 + b"]" * 1_000 + b",1", 2_000, 2_002),
    ],
    ids=lambda rows: str(bytes(rows.body[:12])),
)
def test_json_values_are_taken_with_their_blanks(rows: JsonRows) -> None:
    (run,) = heard(Run(len(rows.ends), rows))
    assert isinstance(run.payload, JsonRows)
    assert bytes(run.payload.body) == rows.body


DEEP = b"[" * 1_000 + b"%b" + b"]" * 1_000
# simdjson does not take it, all other readers do.
BIG_NUMBER = b"123456789012345678901234567890"


@pytest.mark.parametrize("value", [b"1", BIG_NUMBER])
def test_values_of_many_levels_are_taken_in_steps(value: bytes) -> None:
    body = b",".join([DEEP % value] * 500)
    ends = np.arange(1, 501) * (len(DEEP % value) + 1) - 1
    found = list(unpacked(memoryview(said_of(texts(body, *ends))), MOST_ROWS, MOST_ROW_BYTES))
    assert found[-1] is not None
    assert len(found) > len(body) // (64 << 10)


def test_a_long_text_beside_one_of_many_levels_may_have_large_numbers() -> None:
    long = BIG_NUMBER.ljust(70_000)
    (run,) = said(said_of(texts(DEEP % b"1" + b"," + long, 2_001, 2_002 + 70_000)))
    assert run.rows == 2


@pytest.mark.parametrize(
    "text",
    [
        DEEP % b"1" + b",2",
        DEEP % b"1,",
        b"[" * 1_025 + b"]" * 1_025,
        (DEEP % BIG_NUMBER).ljust(70_000),
    ],
    ids=["two", "a comma", "too many levels", "long"],
)
def test_texts_of_many_levels_that_are_no_value_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        said(said_of(texts(text, len(text))))


def said_of(rows: JsonRows) -> bytes:
    return b"".join(packed([Run(len(rows.ends), rows)]))


@pytest.mark.parametrize(
    "rows",
    [
        opaque(struct.pack("<I", 5) + b"abc", 7),
        opaque(struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b", 3, 10),
        opaque(b"ab", 2),
        opaque(struct.pack("<I", 3) + b"abc", 6),
        opaque(struct.pack("<I", 2) + b"abc", 7),
        opaque(b"", 0),
    ],
)
def test_opaque_rows_of_another_length_are_refused(rows: BytesRows) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        heard(Run(rows.rows, rows))


def test_opaque_rows_are_taken() -> None:
    (run,) = heard(Run(3, BytesRows.of([b"", b"abc", b"x" * 300])))
    assert isinstance(run.payload, BytesRows)
    assert run.payload.ends.tolist() == [4, 11, 315]


@pytest.mark.parametrize("width", [0, -1])
@pytest.mark.parametrize("rows", [3, 2**40, 2**62])
def test_rows_of_no_bytes_are_refused(rows: int, width: int) -> None:
    header = _ENCODER.encode([_Head(rows, "matrix", width, None, None, False, False, False, [0])])
    message = len(header).to_bytes(4, "little") + header
    with pytest.raises(ValueError, match=REFUSED):
        said(message + bytes(-len(message) % 64))


def in_stream(
    batch: pa.RecordBatch, packing: str | None = None, more: Sequence[pa.RecordBatch] = ()
) -> list[bytes]:
    """As `packed` would say it, but with this packing."""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=packing)
    with pa.ipc.new_stream(out, batch.schema, options=options) as writer:
        for each in (batch, *more):
            writer.write_batch(each)
    return of_columns(out.getvalue().to_pybytes(), batch.num_rows)


def of_columns(body: bytes, rows: int) -> list[bytes]:
    """A message with this Arrow stream."""
    header = _ENCODER.encode(
        [_Head(rows, "columns", 0, None, None, False, False, False, [len(body)])]
    )
    start = len(header).to_bytes(4, "little") + header
    return [start, bytes(-len(start) % 64), body, bytes(-len(body) % 64)]


TABLES = {
    "numbers": pa.record_batch({"a": [1.0, 2.0]}),
    "texts": pa.record_batch({"a": ["x", "y"], "b": [[1], [2, 3]]}),
    "dictionary": pa.record_batch({"a": pa.array(["x", "y"]).dictionary_encode()}),
}


@pytest.mark.parametrize("name", TABLES)
def test_arrow_batches_are_taken(name: str) -> None:
    (run,) = heard(Run(2, Columns(TABLES[name], "")))
    assert isinstance(run.payload, Columns)
    assert run.payload.batch.equals(TABLES[name])
    # As of rows that are made in the worker: they may share a request.
    assert run.payload.schema == schema_key(TABLES[name].schema.serialize())


@pytest.mark.parametrize(
    "other",
    [
        pa.record_batch({"a: int64\nb": [1]}),
        pa.record_batch({"a": [1], "b": [None]}, schema=pa.schema({"a": "int64", "b": "int32"})),
        pa.record_batch(
            {"a": [1], "b": [1]}, schema=pa.schema({"a": "int64", "b": "int64"}, {"pandas": "{}"})
        ),
    ],
    ids=["name", "type", "note"],
)
def test_columns_of_another_schema_share_no_request(other: pa.RecordBatch) -> None:
    honest = pa.record_batch({"a": [1], "b": [2]})
    shapes = [heard(Run(1, Columns(each, "")))[0].payload.shape for each in (honest, other)]  # type: ignore[union-attr]
    assert shapes[0] != shapes[1]


@pytest.mark.parametrize("packing", ["zstd", "lz4"])
@pytest.mark.parametrize("name", TABLES)
def test_packed_arrow_batches_are_refused_before_they_are_unpacked(name: str, packing: str) -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="packed"):
        said(b"".join(in_stream(TABLES[name], packing)))
    assert pa.total_allocated_bytes() == before


def crooked(type_: pa.DataType, offsets: list[int], values: pa.Array) -> pa.RecordBatch:
    """Rows whose offsets lead out of their values."""
    buffers = [None, pa.py_buffer(np.array(offsets, "<i4").tobytes())]
    if pa.types.is_string(type_):
        array = pa.Array.from_buffers(type_, 2, [*buffers, values.buffers()[-1]])
    else:
        array = pa.Array.from_buffers(type_, 2, buffers, children=[values])
    return pa.record_batch({"a": array})


@pytest.mark.parametrize(
    ("type_", "offsets", "values"),
    [
        (pa.string(), [0, 2**30, 4], pa.array(["abcd"])),
        (pa.string(), [0, 2, 4], pa.array([b"\xff\xfe\xfd\xfc"])),
        (pa.list_(pa.int64()), [0, 2**30, 1], pa.array([7])),
        (pa.list_(pa.int64()), [0, -5, 1], pa.array([7])),
    ],
)
def test_arrow_batches_that_lead_elsewhere_are_refused(
    type_: pa.DataType, offsets: list[int], values: pa.Array
) -> None:
    batch = crooked(type_, offsets, values)
    with pytest.raises(ValueError, match=REFUSED):
        said(b"".join(in_stream(batch)))


def views(of: pa.Array, rows: int, kind: pa.DataType) -> pa.Array:
    """Rows of which each is the whole array."""
    offsets, sizes = np.zeros(rows, "<i4"), np.full(rows, len(of), "<i4")
    parts = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(sizes.tobytes())]
    return pa.Array.from_buffers(kind, rows, parts, children=[of])


def often(values: pa.Array, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), values)


NUMBERS = pa.array(np.arange(50_000, dtype=np.int8))
LIST = pa.ListArray.from_arrays([0, len(NUMBERS)], NUMBERS)
ONE = pa.array(["x" * 50_000])
MANY: dict[str, pa.Array] = {
    "dictionary": often(ONE, 1_000),
    "dictionary of lists": pa.StructArray.from_arrays([often(LIST, 1_000)], ["a"]),
    "string views": pa.array(["x" * 50_000] * 1_000, pa.string_view()),
    "list views": views(NUMBERS, 1_000, pa.list_view(pa.int8())),
    "runs": pa.RunEndEncodedArray.from_arrays([1_000], ONE),
    "union": pa.UnionArray.from_dense(
        pa.array(np.zeros(1_000, np.int8)), pa.array(np.zeros(1_000, np.int32)), [ONE]
    ),
}
# All views name one text, which polars writes so, too.
_views = np.frombuffer(MANY["string views"].buffers()[1], "<i4").reshape(-1, 4)
_same = pa.py_buffer(np.repeat(_views[:1], 1_000, 0).tobytes())
MANY["string views"] = pa.Array.from_buffers(
    pa.string_view(), 1_000, [None, _same, MANY["string views"].buffers()[2]]
)


@pytest.mark.parametrize("name", MANY)
def test_arrow_values_that_are_the_same_bytes_many_times_are_refused(name: str) -> None:
    """Of 50 kB, rows of 50 MB."""
    batch = pa.record_batch({"a": MANY[name]})
    message = b"".join(in_stream(batch))
    assert len(message) < 100_000
    with pytest.raises(ValueError, match="one by one, have 5"):
        said(message)
    few = batch.slice(0, 2)
    (run,) = said(b"".join(in_stream(few)))
    assert run.payload.batch.equals(few)  # type: ignore[union-attr]


def test_a_second_schema_cannot_hide_that_values_repeat() -> None:
    first = stream_of(pa.record_batch({"a": MANY["dictionary"]}))[:-8]
    second = stream_of(pa.record_batch({"a": [1]}))
    with pytest.raises(ValueError, match="two schemas"):
        said(b"".join(of_columns(bytes(first + second), 1_000)))


def test_arrow_values_of_views_of_views_are_counted_to_the_end() -> None:
    """2 to the power of 64 values, which a number of 8 bytes takes for none."""
    column, kind = pa.array([1, 2], pa.int8()), pa.int8()
    for _ in range(4):
        kind = pa.list_view(kind)
        column = views(column, 1 << 16, kind)
    with pytest.raises(ValueError, match="one by one"):
        said(b"".join(in_stream(pa.record_batch({"a": column}))))


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([]), pa.binary(0)], ids=str)
def test_arrow_values_that_take_no_bytes_are_counted(kind: pa.DataType) -> None:
    """A list of two thousand million values in 100 bytes."""
    most = 2**31 - 1
    buffers = {pa.null(): [None], pa.struct([]): [None], pa.binary(0): [None, pa.py_buffer(b"")]}
    values = pa.Array.from_buffers(kind, most, buffers[kind])
    offsets = pa.py_buffer(np.array([0, most], "<i4").tobytes())
    column = pa.Array.from_buffers(pa.list_(kind), 1, [None, offsets], children=[values])
    with pytest.raises(ValueError, match="values that take no bytes"):
        said(b"".join(in_stream(pa.record_batch({"a": column}))))


_LIST_OF_LABELS = pa.ListArray.from_arrays([0, 1 << 20], often(pa.array([""]), 1 << 20))
_ALL_LABELS = pa.FixedSizeListArray.from_arrays(_LIST_OF_LABELS.values, 1 << 20)


@pytest.mark.parametrize("column", [_LIST_OF_LABELS, _ALL_LABELS], ids=["list", "fixed size"])
def test_others_have_turns_while_many_values_of_a_dictionary_are_weighed(
    column: pa.Array,
) -> None:
    message = memoryview(b"".join(in_stream(pa.record_batch({"a": column}))))
    *pauses, run = unpacked(message, MOST_ROWS, 48 << 20)
    assert pauses == [None] * 15
    assert run is not None


def test_values_that_are_weighed_at_once_are_few() -> None:
    labels = often(pa.array([""]), 7_000_000)
    union = pa.UnionArray.from_dense(
        pa.array(np.zeros(1, np.int8)), pa.array(np.zeros(1, np.int32)), [labels]
    )
    message = memoryview(b"".join(in_stream(pa.record_batch({"a": union}))))
    with pytest.raises(ValueError, match="that take no bytes and may repeat"):
        list(unpacked(message, MOST_ROWS, 8 << 20))


def test_of_a_long_text_of_many_levels_no_values_are_made() -> None:
    text = b"[" * 1_010 + b"1," * (5 << 20) + b"1" + b"]" * 1_010
    with pytest.raises(ValueError, match="a long text of many levels"):
        said(b"".join(packed([Run(1, JsonRows.of([text]))])))


_RUN = pa.RunEndEncodedArray.from_arrays(pa.array([22_000_000], pa.int32()), ONE)
_NULLS = pa.FixedSizeListArray.from_arrays(pa.nulls(3_000_000), 3_000_000)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": pa.FixedSizeListArray.from_arrays(_RUN, len(_RUN))}),
        pa.record_batch({name: often(_NULLS, 1) for name in "abc"}),
    ],
    ids=["runs", "dictionaries"],
)
def test_values_that_may_repeat_and_take_no_bytes_are_refused_before_they_are_weighed(
    batch: pa.RecordBatch,
) -> None:
    message = memoryview(b"".join(in_stream(batch)))
    with pytest.raises(ValueError, match="that take no bytes and may repeat"):
        list(unpacked(message, MOST_ROWS, 48 << 20))


@pytest.mark.parametrize("kind", [pa.bool_(), pa.null()], ids=str)
def test_many_small_values_are_taken_where_rows_must_be_short(kind: pa.DataType) -> None:
    columns = {str(number): pa.nulls(16_384, kind) for number in range(64)}
    (run,) = unpacked(memoryview(b"".join(in_stream(pa.record_batch(columns)))), MOST_ROWS, 20_000)
    assert run is not None
    assert run.rows == 16_384


_TEXTS = {f"text {number}": pa.array(["x"]) for number in range(999)}
_LABEL = pa.array(["x"]).dictionary_encode()
_PLAIN = pa.StructArray.from_arrays([*_TEXTS.values()], [*_TEXTS])
_WIDE = pa.StructArray.from_arrays([*_TEXTS.values(), _LABEL], [*_TEXTS, "label"])


@pytest.mark.parametrize(
    ("batch", "pauses"),
    [
        # For the fields of the schema there are two pauses, for 1,000 dictionaries ten.
        (pa.record_batch({**_TEXTS, "label": _LABEL}), 2),
        (pa.record_batch({f"label {number}": _LABEL for number in range(1_000)}), 2 + 10 + 10),
        (
            pa.record_batch({"a": _WIDE}),
            2 + 10,
        ),
        (pa.record_batch({"a": pa.ListArray.from_arrays([0, 1], _WIDE)}), 2 + 10),
        # 64 fields of a struct whose values repeat are weighed at a time.
        (pa.record_batch({"a": often(_PLAIN, 1)}), 2 + 15),
    ],
    ids=["texts and a label", "labels", "one struct", "a list of structs", "structs that repeat"],
)
def test_columns_of_which_values_may_repeat_are_weighed_in_steps_and_no_others(
    batch: pa.RecordBatch, pauses: int
) -> None:
    arrow_messages._sound.clear()
    *before, run = unpacked(memoryview(b"".join(in_stream(batch))), MOST_ROWS, MOST_ROW_BYTES)
    assert before == [None] * pauses
    assert run is not None


def test_a_column_of_which_values_repeat_has_no_other_weighed() -> None:
    """The long name would count in each row."""
    structs = pa.StructArray.from_arrays([pa.array(range(1_000))], ["x" * 3_000])
    batch = pa.record_batch({"a": structs, "label": often(pa.array(["x"]), 1_000)})
    (run,) = said(b"".join(in_stream(batch)))
    assert run.rows == 1_000


@pytest.mark.parametrize("nbytes", [16 << 10, (16 << 10) + 1])
def test_an_arrow_extension_with_a_long_description_is_refused(nbytes: int) -> None:
    """Arrow before version 26 would end the worker over one of many levels."""
    notes = {"ARROW:extension:name": "of nobody", "ARROW:extension:metadata": "[" * nbytes}
    field = pa.field("a", pa.int8(), metadata=notes)
    inner = pa.field("b", pa.struct([field]), metadata={"comment": "x" * 100_000})
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, inner.type)], schema=pa.schema([inner]))
    message = b"".join(in_stream(batch))
    if nbytes > 16 << 10:
        with pytest.raises(ValueError, match="a long description"):
            said(message)
    else:
        assert said(message)


@pytest.mark.parametrize("cut", [0, 1, 7, 40, 100, 200])
def test_arrow_streams_that_break_off_are_refused(cut: int) -> None:
    body = in_stream(TABLES["texts"])[2][:cut]
    head = _Head(2, "columns", 0, None, None, False, False, False, [len(body)])
    header = _ENCODER.encode([head])
    start = len(header).to_bytes(4, "little") + header
    message = start + bytes(-len(start) % 64) + body + bytes(-len(body) % 64)
    with pytest.raises(ValueError, match=REFUSED):
        said(message)


@pytest.mark.parametrize(
    "message",
    [
        b"R",
        b"R?",
        b"R@",
        b"R@\x01\x00\x00",
        b"R@\x01\x00\x00\x00\x00",
        placed(b"R", OUTBOX_BYTES + 1),
        placed(b"R", 2**32 - 1),
    ],
)
def test_messages_of_another_kind_and_of_more_than_the_box_holds_are_refused(
    message: bytes,
) -> None:
    _, outbox = boxes(new_boxes())
    with pytest.raises(ValueError, match=r"another kind|a piece of"):
        heard_by(message, outbox)


def test_what_the_worker_has_heard_stays_as_it_was_whatever_is_written_then() -> None:
    memory = new_boxes()
    theirs, (_, ours) = Box(os.dup(memory), INBOX_BYTES, OUTBOX_BYTES), boxes(memory)
    assert list(theirs.filled([b"honest"])) == [6]
    message = heard_by(placed(b"R", 6), ours)
    assert list(theirs.filled([b"forged"])) == [6]
    assert message.body == b"honest"


@pytest.mark.parametrize("nbytes", [0, 1, INBOX_BYTES - 1, INBOX_BYTES, INBOX_BYTES + 1])
def test_a_box_is_filled_piece_by_piece(nbytes: int) -> None:
    inbox, _ = boxes(new_boxes())
    data = os.urandom(nbytes)
    parts: list[bytes | memoryview] = [data[:5], memoryview(data)[5:70_000], b"", data[70_000:]]
    taken = b"".join(inbox.take(count) for count in inbox.filled(parts))
    assert taken == data
    inbox.empty()
    assert inbox.take(9) == bytes(9)


def stream_of(batch: pa.RecordBatch) -> bytearray:
    return bytearray(in_stream(batch)[2])


def test_arrow_columns_that_are_the_same_bytes_are_refused() -> None:
    """3 columns of 4 MB in a message of 4 MB: with 3,000, their texts alone would take seconds."""
    batch = pa.record_batch([["x" * (4 << 20)], [""], [""]], names=["a", "b", "c"])
    stream = stream_of(batch)
    at = stream.index(struct.pack("<4q", 0, 0, 0, 8))  # of the first column: none are null, offsets
    stream[at + 48 : at + 96] = stream[at : at + 48]
    stream[at + 96 : at + 144] = stream[at : at + 48]
    with pytest.raises(ValueError, match="columns that share"):
        said(b"".join(of_columns(bytes(stream), 1)))


@pytest.mark.parametrize("lengths", [(-8, 8), (2**62, 2**62), (2**63 - 1, 9)])
def test_arrow_buffers_whose_lengths_are_none_are_refused(lengths: tuple[int, int]) -> None:
    stream = stream_of(pa.record_batch({"a": [1.0], "b": [2.0]}))
    at = stream.index(struct.pack("<4q", 0, 0, 0, 8))
    for place, length in zip((at + 8, at + 24), lengths, strict=True):
        stream[place : place + 8] = struct.pack("<q", length)
    with pytest.raises(ValueError, match="columns that share"):
        said(b"".join(of_columns(bytes(stream), 1)))


def schema_of(stream: bytearray) -> tuple[arrow_messages._BatchHead, int]:
    """The first head of an Arrow stream, and the table of its schema."""
    head = arrow_messages._BatchHead(memoryview(bytes(stream[8:])))
    return head, head._table(head._message, 2)


def point(stream: bytearray, at: int, to: int) -> None:
    """Let what is there in the first head refer to that place."""
    stream[8 + at : 12 + at] = struct.pack("<I", to - at)


def test_arrow_columns_that_have_one_name_in_the_same_bytes_are_refused() -> None:
    names = ["x" * 5_000] + [f"{number}" for number in range(99)]
    stream = stream_of(pa.record_batch([[1.0]] * 100, names=names))
    head, schema = schema_of(stream)
    fields = list(head._tables(schema, 1))
    shared = head._list(fields[0], 0)[0] - 4
    for field in fields:
        at = head._field(field, 0)
        if at < shared:
            point(stream, at, shared)
    with pytest.raises(ValueError, match="names share"):
        said(b"".join(of_columns(bytes(stream), 1)))


def test_arrow_columns_that_share_a_dictionary_are_refused() -> None:
    """It would be weighed once for each."""
    stream = stream_of(pa.record_batch(dict.fromkeys("abc", MANY["dictionary"][:1])))
    head, schema = schema_of(stream)
    *_, last = head._tables(schema, arrow_messages._FIELDS)
    at = head._field(head._table(last, arrow_messages._PACKED), arrow_messages._ID)
    struct.pack_into("<q", stream, 8 + at, 1)
    with pytest.raises(ValueError, match="share a dictionary"):
        said(b"".join(of_columns(bytes(stream), 1)))


def test_arrow_columns_that_are_the_same_columns_in_each_level_are_refused() -> None:
    """Of 16 levels with two columns each that are one: 65,536 columns, which take seconds."""
    kind = pa.int8()
    for _ in range(16):
        kind = pa.struct([("a", kind), ("b", pa.int8())])
    # A long note has room for what the levels say, as Arrow counts it.
    noted = pa.schema([("r", kind)], metadata={"k": "x" * 100_000})
    stream = stream_of(pa.RecordBatch.from_arrays([pa.nulls(1, kind)], schema=noted))
    head, schema = schema_of(stream)
    (field,) = head._tables(schema, 1)
    while head._list(field, 5)[1] == 2:
        at = head._list(field, 5)[0]
        (field, _) = head._tables(field, 5)
        if head._list(field, 5)[1] == 2:
            point(stream, at + 4, field)
    with pytest.raises(ValueError, match="names share"):
        said(b"".join(of_columns(bytes(stream), 1)))


def test_arrow_columns_of_too_many_levels_and_notes_are_refused() -> None:
    noted = pa.schema([("a", pa.int8())], metadata={f"{number}": "" for number in range(501)})
    with pytest.raises(ValueError, match="500 notes"):
        said(
            b"".join(in_stream(pa.RecordBatch.from_arrays([pa.nulls(1, pa.int8())], schema=noted)))
        )
    kind: pa.DataType = pa.int8()
    for _ in range(70):
        kind = pa.struct([("a", kind)])
    out = pa.BufferOutputStream()
    pa.ipc.new_stream(out, pa.schema([("r", kind)])).close()
    with pytest.raises(ValueError, match="64 levels"):
        said(b"".join(of_columns(out.getvalue().to_pybytes(), 1)))


def test_a_table_of_many_columns_is_looked_at_in_steps() -> None:
    batch = pa.record_batch({f"{number}": [1.0] for number in range(1_200)})
    *pauses, run = unpacked(memoryview(b"".join(in_stream(batch))), MOST_ROWS, MOST_ROW_BYTES)
    assert pauses == [None, None]
    assert run is not None
    assert isinstance(run.payload, Columns)
    assert run.payload.batch.equals(batch)


@pytest.mark.parametrize(
    ("times", "is_taken"),
    [
        ([NO_TIME, EARLIEST_MS, LATEST_MS], True),
        ([EARLIEST_MS - 1], False),
        ([5, LATEST_MS + 1], False),
        ([2**63 - 1], False),
    ],
)
def test_times_of_no_year_are_refused(times: list[int], is_taken: bool) -> None:
    matrix = Matrix(np.ones((len(times), 1), np.float32))
    run = Run(len(times), matrix, kept=Kept(None, np.array(times, "<i8")))
    with nullcontext() if is_taken else pytest.raises(ValueError, match="no year"):
        assert heard(run)


def test_many_opaque_rows_and_kept_columns_are_checked_in_steps() -> None:
    rows = 70_000
    opaque_rows, columns = BytesRows.of([b"x"] * rows), JsonRows.of([b"{}"] * rows)
    message = b"".join(packed([Run(rows, opaque_rows, kept=Kept(columns, None))]))
    *pauses, run = unpacked(memoryview(message), MOST_ROWS, MOST_ROW_BYTES)
    assert pauses == [None, None]
    assert run is not None
    assert run.kept is not None
    assert run.kept.columns is not None
    assert run.kept.columns.rows == rows
    for true, lie in ((b"\1\0\0\0x", b"\2\0\0\0x"), (b"{}", b"[]")):
        at = message.rfind(true)
        with pytest.raises(ValueError, match=REFUSED):
            said(message[:at] + lie + message[at + len(lie) :])


def test_bytes_that_belong_to_no_row_are_refused() -> None:
    message = b"".join(packed([Run(1, Matrix(np.ones((1, 2), np.float32)))]))
    with pytest.raises(ValueError, match="no row"):
        said(message + bytes(64))


@pytest.mark.parametrize("lengths", [[], [4], [4, 8, 8], [4, 8, 8, 8]])
def test_rows_of_another_number_of_arrays_are_refused(lengths: list[int]) -> None:
    header = _ENCODER.encode([_Head(1, "json", 0, None, None, False, False, False, lengths)])
    message = len(header).to_bytes(4, "little") + header
    with pytest.raises(ValueError, match="arrays in place of 2"):
        said(message + bytes(-len(message) % 64 + 64 * len(lengths)))


def test_a_decoder_cuts_a_reason_and_a_longer_one_is_refused() -> None:
    (run,) = heard(Run(1, None, "E" * 100_000))
    assert run.error == "E" * 4_096
    head = [1, "none", 0, "E" * 4_097, None, False, False, False, []]
    with pytest.raises(ValueError, match="length <= 4096"):
        said(header_of(head))


def test_a_long_name_of_a_member_is_refused() -> None:
    (run,) = heard(Run(1, None, member="m" * (1 << 18)))
    assert run.member == "m" * (1 << 18)
    with pytest.raises(ValueError, match="length <= 262144"):
        heard(run._replace(member="m" * (1 << 18) + "m"))


def test_a_header_is_as_long_as_that_of_a_piece_may_be() -> None:
    pieces: list[list[Run]] = []
    gathering = Pieces(pieces.append)
    while not pieces:
        gathering.add(Run(1, None, member="\U0001f600" * (1 << 18)))
    runs = pieces[0]
    assert len(heard(*runs)) == len(runs)
    with pytest.raises(ValueError, match="a header of"):
        heard(*runs, *runs[:2])


@pytest.mark.parametrize("text", [b'{"a":\n{"id":1}\n}', b'{"a":\r1}'])
def test_kept_columns_on_several_lines_are_refused(text: bytes) -> None:
    """A line of a result would be a record of its own."""
    for texts_ in ([text], [b"{}", text], [b'{"a":"%b"}' % (b"x" * 300_000), text]):
        matrix = Matrix(np.ones((len(texts_), 1), np.float32))
        with pytest.raises(ValueError, match="on several lines"):
            heard(Run(len(texts_), matrix, kept=Kept(JsonRows.of(texts_), None)))


def nested(levels: int) -> bytes:
    return b'{"a":%b%b}' % (b"[" * levels, b"]" * levels)


@pytest.mark.parametrize(
    "text", [b'{"a":1e999}', b'{"a":%b}' % (b"9" * 400), nested(256), nested(900), nested(1_010)]
)
def test_kept_columns_that_readers_of_records_cannot_read_are_refused(text: bytes) -> None:
    matrix = Matrix(np.ones((2, 1), np.float32))
    with pytest.raises(ValueError, match=REFUSED):
        heard(Run(2, matrix, kept=Kept(JsonRows.of([b"{}", text]), None)))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1e308,"b":%b}' % BIG_NUMBER,
        nested(254),
        b'{"a":"%b\\\\"}' % (b'\\"[{' * 300),
        b'{"a":[%b]}' % b",".join([b"[]"] * 300),
    ],
    ids=["numbers", "levels", "brackets in a text", "many brackets"],
)
def test_kept_columns_that_readers_of_records_can_read_are_taken(text: bytes) -> None:
    matrix = Matrix(np.ones((2, 1), np.float32))
    (run,) = heard(Run(2, matrix, kept=Kept(JsonRows.of([b"{}", text]), None)))
    assert run.kept is not None
    assert run.kept.columns is not None
    assert bytes(run.kept.columns.body) == b"{}," + text


def header_of(*heads: object) -> bytes:
    header = _ENCODER.encode(heads)
    message = len(header).to_bytes(4, "little") + header
    return message + bytes(-len(message) % 64)


def test_as_many_runs_as_a_piece_may_have_are_taken_and_one_more_is_refused() -> None:
    pieces: list[list[Run]] = []
    gathering = Pieces(pieces.append)
    while not pieces:
        gathering.add(Run(1, None))
    assert len(pieces[0]) == MOST_RUNS
    assert len(heard(*pieces[0])) == MOST_RUNS
    with pytest.raises(ValueError, match="length <= 4097"):
        heard(*pieces[0], Run(1, None))


def test_a_header_that_says_more_than_a_run_has_is_refused_before_it_is_read() -> None:
    head = [1, "none", 0, None, None, False, False, False, []]
    assert len(said(header_of(head))) == 1
    for longer in ([*head[:-1], [4] * 7], [*head, 0]):
        with pytest.raises(ValueError, match="length"):
            said(header_of(longer))


@pytest.mark.parametrize("more", [[1], [2**62, 2**62], [-1, 2]])
def test_rows_are_counted_before_a_run_is_made(more: list[int]) -> None:
    """The runs are of one value that is missing: to make them would fail otherwise."""
    heads = [_Head(rows, "matrix", 1, None, None, False, False, False, [4]) for rows in (9, *more)]
    with pytest.raises(ValueError, match=r"rows in place of 9 at most|>= 1"):
        next(unpacked(memoryview(header_of(*heads)), 9, MOST_ROW_BYTES))


@pytest.mark.parametrize("columns", [b"1", b"[2]", b'"x"', b"null"])
def test_kept_columns_that_are_no_objects_are_refused(columns: bytes) -> None:
    for texts_ in ([columns], [b"{}", columns]):
        matrix = Matrix(np.ones((len(texts_), 1), np.float32))
        with pytest.raises(ValueError, match="no objects"):
            heard(Run(len(texts_), matrix, kept=Kept(JsonRows.of(texts_), None)))


def test_rows_that_are_longer_than_a_row_may_be_are_refused() -> None:
    message = memoryview(b"".join(packed([Run(2, texts(b'"' + bytes(60) + b'",1', 62, 64))])))
    with pytest.raises(ValueError, match="2 rows of 80 bytes"):
        next(unpacked(message, 9, 39))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_text_of_many_values_is_refused_before_they_are_made(rows: int) -> None:
    """Of the values of 16 MiB, 8 million would be made."""
    body = b",".join([b"1"] * (8 << 20))
    message = b"".join(packed([Run(rows, texts(body, *range(1, 2 * rows - 2, 2), len(body)))]))
    tracemalloc.start()
    with pytest.raises(ValueError, match=REFUSED):
        said(message)
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("length", [1, 7, 4_000, 300_000])
def test_texts_that_are_checked_in_steps_are_those_of_the_message(length: int) -> None:
    body = b",".join([b'"%s"' % (b"a," * (length // 2))] * (600_000 // length))
    ends = np.arange(1, 600_000 // length + 1) * (2 * (length // 2) + 3) - 1
    message = memoryview(b"".join(packed([Run(len(ends), texts(body, *ends))])))
    *pauses, run = unpacked(message, MOST_ROWS, MOST_ROW_BYTES)
    assert pauses
    assert set(pauses) == {None}
    assert run is not None
    assert isinstance(run.payload, JsonRows)
    assert bytes(run.payload.body) == body
    assert np.array_equal(run.payload.ends, ends)
    for at in (0, 1):  # between the first texts, and between the last
        forged = bytes(message)
        place = (forged.find, forged.rfind)[at](b'","')
        forged = forged[: place + 1] + b" " + forged[place + 2 :]
        with pytest.raises(ValueError, match=REFUSED):
            said(forged)


def test_the_end_behind_which_the_last_rows_come_has_a_bounded_length() -> None:
    run = Run(1, Matrix(np.ones((1, 2), np.float32)))
    for end in (b"", b"end", bytes(61), bytes(60)):
        message = memoryview(b"".join(with_end(end, [run])))
        found, rest = end_and_rest(message, 100)
        assert bytes(found) == end
        (again,) = said(bytes(rest))
        assert isinstance(again.payload, Matrix)
        assert again.payload.values.tolist() == [[1.0, 1.0]]
    with pytest.raises(ValueError, match="an end of 101 bytes"):
        end_and_rest(memoryview(b"".join(with_end(bytes(101), [run]))), 100)
    for cut in range(20):
        found, rest = end_and_rest(memoryview(b"".join(with_end(b"end", [run])))[:cut], 100)
        with pytest.raises(ValueError, match=REFUSED):
            said(bytes(rest))
