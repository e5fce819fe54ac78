"""Packs runs of rows into a message from a decoder to its worker: a header, then arrays as they lie
in memory.

Rule: the worker believes nothing that a message says. Each text must be one JSON value, each opaque
row as long as it says, each Arrow batch valid in full and not packed; otherwise rows of other
objects in the same batch would get their neighbours' answers, or the worker would crash. What is
written into records is on one line, as their readers expect. The arrays of the worker are views of
the message, not copies.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import simdjson

from penstock.core.rows.payload import (
    BLOCK_COST_BYTES,
    LENGTH_BYTES,
    BytesRows,
    Columns,
    JsonRows,
    Kept,
    Matrix,
    Payload,
)
from penstock.decoders import arrow_messages
from penstock.decoders.readable import check_readable
from penstock.formats.kept_columns import are_times
from penstock.formats.runs import PIECE_BYTES, Run

# The size of a cache line. Arrays begin at multiples of it.
_ALIGNED_BYTES: Final = 64
_LENGTH_BYTES: Final = 4
_SPACE: Final = bytes(_ALIGNED_BYTES)

Buffer = bytes | memoryview
Numbers = npt.NDArray[np.int64]


# Two arrays of a payload, two of kept columns, the times, and since when.
_MOST_ARRAYS: Final = 6
# `Pieces` hands a piece on when its runs alone cost more than the size of a piece.
MOST_RUNS: Final = PIECE_BYTES // BLOCK_COST_BYTES + 1


# A name in a zip has at most 65,535 bytes; a member of a member has the names of both.
_MOST_MEMBER_CHARS: Final = 1 << 18
MOST_ERROR_CHARS: Final = 4_096


class _Head(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One run in the header. `kind`: the kind of its payload; `width`: the number of columns of a
    matrix; `lengths`: the lengths of the run's arrays, in the order in which they follow the
    header.
    """

    rows: Annotated[int, msgspec.Meta(ge=1)]
    kind: Literal["matrix", "json", "bytes", "columns", "none"]
    width: int
    error: Annotated[str, msgspec.Meta(max_length=MOST_ERROR_CHARS)] | None
    member: Annotated[str, msgspec.Meta(max_length=_MOST_MEMBER_CHARS)] | None
    has_columns: bool
    has_times: bool
    has_since: bool
    lengths: Annotated[list[int], msgspec.Meta(max_length=_MOST_ARRAYS)]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(
    Annotated[list[_Head], msgspec.Meta(max_length=MOST_RUNS)]
)
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)
# So many bytes of texts are checked at a time. Texts that lie have a value every two bytes, which
# take 15 ms and 8 MB.
_STEP_BYTES: Final = 256 << 10
# So many rows are checked at a time by numpy, which takes 2 ms.
_STEP_ROWS: Final = 64 << 10
# So many bytes of texts of many levels are checked at a time, and at most a text of this size is
# decoded, which takes 15 ms.
_MOST_DEEP_BYTES: Final = 64 << 10
# A longer text of many levels is none that `limits.row_bytes` allows by default. Its check takes
# 12 times its bytes.
_MOST_DEEP_TEXT: Final = 8 << 20
_BLANKS: Final = b" \t\r\n"
_OBJECT, _COMMA = b"{,"
# `Pieces` counts the characters of names and errors, which have at most four bytes.
_MOST_HEADER_BYTES: Final = 4 * (PIECE_BYTES + _MOST_MEMBER_CHARS + MOST_ERROR_CHARS)
# The values of a batch may be so much larger than its bytes, because one may be named many times.
_MOST_TIMES: Final = 2
_FREE_WEIGHT: Final = 2 << 20  # tables are decoded in steps of 1 MiB
# So many columns are weighed at a time, which takes some 10 ms.
_STEP_COLUMNS: Final = 100


def packed(runs: Iterable[Run]) -> list[Buffer]:
    heads: list[_Head] = []
    body: list[Buffer] = []
    for run in runs:
        head, buffers = _packed_run(run)
        heads.append(head)
        for buffer in buffers:
            head.lengths.append(len(buffer))
            body.append(buffer)
            if space := -len(buffer) % _ALIGNED_BYTES:
                body.append(_SPACE[:space])
    header = _ENCODER.encode(heads)
    length = len(header).to_bytes(_LENGTH_BYTES, "little")
    return [length, header, _SPACE[: -(len(header) + _LENGTH_BYTES) % _ALIGNED_BYTES], *body]


def _packed_run(run: Run) -> tuple[_Head, list[Buffer]]:
    error = None if run.error is None else run.error[:MOST_ERROR_CHARS]
    head = _Head(run.rows, "none", 0, error, run.member, False, False, False, [])
    buffers = _packed_payload(run.payload, head)
    if run.kept is not None and run.kept.columns is not None:
        head.has_columns = True
        buffers += [run.kept.columns.body, _raw(run.kept.columns.ends)]
    if run.kept is not None and run.kept.times is not None:
        head.has_times = True
        buffers.append(_raw(run.kept.times))
    if run.since_ms is not None:
        head.has_since = True
        buffers.append(_raw(run.since_ms))
    return head, buffers


def _packed_payload(payload: Payload | None, head: _Head) -> list[Buffer]:
    match payload:
        case None:
            return []
        case Matrix(values):
            head.kind, head.width = "matrix", values.shape[1]
            return [_raw(values)]
        case JsonRows(body, ends):
            head.kind = "json"
            return [body, _raw(ends)]
        case BytesRows(body, ends):
            head.kind = "bytes"
            return [body, _raw(ends)]
        case Columns(batch):
            head.kind = "columns"
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch)
            return [memoryview(out.getvalue())]
    raise TypeError(f"rows of {type(payload).__name__}")


def _raw(values: npt.NDArray[Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def with_end(end: bytes, runs: Iterable[Run]) -> list[Buffer]:
    """The parts of a message with the last runs of an object and its end."""
    length = len(end).to_bytes(_LENGTH_BYTES, "little")
    return [length, end, _SPACE[: -(len(end) + _LENGTH_BYTES) % _ALIGNED_BYTES], *packed(runs)]


def end_and_rest(message: memoryview, most_end_bytes: int) -> tuple[memoryview, memoryview]:
    """The end of an object, and its last runs, which are not unpacked yet."""
    nbytes = int.from_bytes(message[:_LENGTH_BYTES], "little")
    if nbytes > most_end_bytes:
        raise ValueError(f"an end of {nbytes} bytes")
    at = _LENGTH_BYTES + nbytes
    return message[_LENGTH_BYTES:at], message[at + -at % _ALIGNED_BYTES :]


def joined(messages: Iterable[Sequence[Buffer]]) -> list[Buffer]:
    """The parts of one message that holds several. In it, too, each begins at a multiple of
    `_ALIGNED_BYTES`.
    """
    messages = list(messages)
    lengths = [sum(map(len, parts)) for parts in messages]
    message: list[Buffer] = [np.array(lengths, "<u4").tobytes()]
    at = _LENGTH_BYTES * len(lengths)
    for parts, nbytes in zip(messages, lengths, strict=True):
        message += (_SPACE[: -at % _ALIGNED_BYTES], *parts)
        at = nbytes
    return message


def parted(message: memoryview, number: int) -> list[memoryview]:
    """The messages that were joined. Raises `ValueError` if they are not this number."""
    at = _LENGTH_BYTES * number
    parts: list[memoryview] = []
    for nbytes in np.frombuffer(message[:at], "<u4").tolist():
        begin = at + -at % _ALIGNED_BYTES
        at = begin + nbytes
        parts.append(message[begin:at])
    if at != len(message) or len(parts) != number:
        raise ValueError(f"no {number} messages in {len(message)} bytes")
    return parts


def unpacked(message: memoryview, most_rows: int, most_row_bytes: int) -> Iterator[Run | None]:
    """The runs of a message. Between two steps of long work this gives None: others should have a
    turn. Raises `ValueError` if its lengths do not add up, if the rows of a run are longer than
    `most_row_bytes` on average, or if it has more than `most_rows` rows or more runs than a piece.
    These are counted before any run is made, since to make a million runs holds up the event loop
    for seconds.
    """
    header_bytes = int.from_bytes(message[:_LENGTH_BYTES], "little")
    if header_bytes > _MOST_HEADER_BYTES:
        raise ValueError(f"a header of {header_bytes} bytes")
    at = _LENGTH_BYTES + header_bytes
    try:
        heads = _DECODER.decode(message[_LENGTH_BYTES:at])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    rows = sum(head.rows for head in heads)
    if rows > most_rows:
        raise ValueError(f"{rows} rows in place of {most_rows} at most")
    at += -at % _ALIGNED_BYTES

    def take(nbytes: int) -> memoryview:
        nonlocal at
        if nbytes < 0 or at + nbytes > len(message):
            raise ValueError("rows that break off")
        part = message[at : at + nbytes]
        at += nbytes + -nbytes % _ALIGNED_BYTES
        return part

    for head in heads:
        yield (yield from _run(head, take, head.rows * most_row_bytes))
    if at != len(message):
        raise ValueError("bytes that belong to no row")


def _run(
    head: _Head, take: Callable[[int], memoryview], most_bytes: int
) -> Generator[None, None, Run]:
    arrays = 2 * (head.kind in ("json", "bytes")) + (head.kind in ("matrix", "columns"))
    arrays += 2 * head.has_columns + head.has_times + head.has_since
    if len(head.lengths) != arrays:
        raise ValueError(f"{len(head.lengths)} arrays in place of {arrays}")
    if sum(head.lengths) > most_bytes:
        raise ValueError(f"{head.rows} rows of {sum(head.lengths)} bytes")
    buffers = [take(nbytes) for nbytes in head.lengths][::-1]  # so `pop` takes the first
    if (head.width < 1) is (head.kind == "matrix"):
        raise ValueError(f"rows of {head.width} columns")
    payload = yield from _payload(head, buffers, most_bytes // head.rows)
    columns = (yield from _objects(head.rows, buffers)) if head.has_columns else None
    times = _times(head.rows, buffers) if head.has_times else None
    since_ms = _numbers(head.rows, buffers) if head.has_since else None
    kept = Kept(columns, times) if head.has_columns or head.has_times else None
    return Run(head.rows, payload, head.error, head.member, kept, since_ms)


def _payload(
    head: _Head, buffers: list[memoryview], most_row_bytes: int
) -> Generator[None, None, Payload | None]:
    if head.kind == "none":
        return None
    if head.error is not None:
        raise ValueError("rows that are good and bad")
    if head.kind == "matrix":
        values = np.frombuffer(buffers.pop(), "<f4")
        return Matrix(values.reshape(head.rows, head.width))
    if head.kind == "json":
        return (yield from _json(head.rows, buffers))
    if head.kind == "bytes":
        return (yield from _opaque(head.rows, buffers))
    return (yield from _columns(head.rows, buffers.pop(), most_row_bytes))


def _json(rows: int, buffers: list[memoryview]) -> Generator[None, None, JsonRows]:
    """Texts of which each is one JSON value."""
    body, ends = _texts(rows, buffers)
    for start, end, some in _commas_between(body, ends):
        if start:
            yield
        try:
            _check_values(body[start:end], some)
        except RecursionError:  # from some 1,000 levels on; formats take a few more
            yield from _check_deep(body[start:end], some)
    return JsonRows(body, ends)


def _commas_between(body: memoryview, ends: Numbers) -> Iterator[tuple[int, int, Numbers]]:
    """Texts are checked some at a time: what is in them may be anything, and a long text must not
    hold up the event loop by what it says. Gives where some begin and end in the body, and where
    each ends behind that.
    """
    first = start = 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, start + _STEP_BYTES, "right")))
        end = int(ends[stop - 1])
        if first and body[start - 1] != _COMMA:
            raise ValueError("rows that no comma parts")
        yield start, end, ends[first:stop] - start
        first, start = stop, end + 1


def _check_values(body: memoryview, ends: Numbers) -> None:
    """Together in brackets, the texts must be as many elements, each as long as its text. (Then no
    text can end elsewhere than its element: the first that did would have another length.)
    """
    str(body, "utf-8")  # msgspec does not look into texts that it does not decode
    if len(ends) == 1:  # it may be long, and made of more values than fit our memory
        _VALUE.decode(body)
        return
    elements = _ELEMENTS.decode(b"".join((b"[", body, b"]")))
    if len(elements) != len(ends):
        raise ValueError(f"{len(elements)} JSON values in {len(ends)} rows")
    lengths = np.fromiter(map(len, elements), np.int64, len(ends))
    if not np.array_equal(np.cumsum(lengths + 1) - 1, ends):
        stripped = [len(bytes(body[start:end]).strip(_BLANKS)) for start, end in _places(ends)]
        if stripped != lengths.tolist():
            raise ValueError("rows that are no JSON values")


def _check_deep(body: memoryview, ends: Numbers) -> Generator[None]:
    """Each text must be one JSON value of at most 1,024 levels."""
    parser, step = simdjson.Parser(), 0
    for start, end in _places(ends):
        text = bytes(body[start:end])
        try:
            _VALUE.decode(text)
        except RecursionError:
            _check_levels(parser, text)
        if start // _MOST_DEEP_BYTES > step:
            step = start // _MOST_DEEP_BYTES
            yield


def _check_levels(parser: simdjson.Parser, text: bytes) -> None:
    """No values are made of the text, except where a short one has numbers that simdjson does not
    take: to make values of 1,000 levels takes twenty times as long.
    """
    if len(text) > _MOST_DEEP_TEXT:
        raise ValueError("a long text of many levels")
    try:
        parser.parse(text)
    except (ValueError, RuntimeError):
        if len(text) > _MOST_DEEP_BYTES:
            raise ValueError("a long text of many levels") from None
        orjson.loads(text)


def _objects(rows: int, buffers: list[memoryview]) -> Generator[None, None, JsonRows]:
    """The kept columns of rows, which records repeat."""
    columns = yield from _json(rows, buffers)
    parser, view = simdjson.Parser(), memoryview(columns.body)
    for start, end, some in _commas_between(view, columns.ends):
        if start:
            yield
        check_readable(parser, b"".join((b"[", view[start:end], b"]")), len(some))
    body = np.frombuffer(view, np.uint8)
    for starts, _ in _steps(columns.ends, between=1):
        if (body[starts] != _OBJECT).any():
            raise ValueError("columns that are no objects")
        if len(starts) == _STEP_ROWS:
            yield
    return columns


def _steps(ends: Numbers, between: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Where each row begins and ends, some rows at a time. `between`: how many bytes are between
    two rows.
    """
    for first in range(0, len(ends), _STEP_ROWS):
        stops = ends[first : first + _STEP_ROWS]
        starts = np.empty_like(stops)
        starts[0] = ends[first - 1] + between if first else 0
        starts[1:] = stops[:-1] + between
        yield starts, stops


def _places(ends: Numbers) -> Iterator[tuple[int, int]]:
    """Where each of the texts begins and ends."""
    return zip([0, *(ends[:-1] + 1).tolist()], ends.tolist(), strict=True)


def _opaque(rows: int, buffers: list[memoryview]) -> Generator[None, None, BytesRows]:
    body, ends = _texts(rows, buffers)
    if rows == 1:  # as of a picture; arrays of one number take ten times as long
        nbytes = len(body) - LENGTH_BYTES
        if nbytes < 0 or int.from_bytes(body[:LENGTH_BYTES], "little") != nbytes:
            raise ValueError("a row with a wrong length")
        return BytesRows(body, ends)
    data = np.frombuffer(body, np.uint8)
    for starts, stops in _steps(ends, between=0):
        if (stops - starts < LENGTH_BYTES).any():
            raise ValueError("rows without a length")
        lengths = data[starts[:, None] + np.arange(LENGTH_BYTES)].view("<u4").reshape(-1)
        if (lengths != stops - starts - LENGTH_BYTES).any():
            raise ValueError("rows with a wrong length")
        if len(starts) == _STEP_ROWS:
            yield
    return BytesRows(body, ends)


def _columns(rows: int, stream: memoryview, most_row_bytes: int) -> Generator[None, None, Columns]:
    """The batch of an Arrow stream."""
    checked = yield from arrow_messages.check(stream, most_row_bytes)
    try:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (OSError, MemoryError, StopIteration, pa.ArrowException) as error:
        raise ValueError(f"no Arrow batch: {error}") from error
    if batch.num_rows != rows:
        raise ValueError(f"{batch.num_rows} rows of {rows}")
    if len(checked.repeating):
        most_bytes = most_row_bytes if rows == 1 else _FREE_WEIGHT
        columns = map(batch.column, checked.repeating.tolist())
        yield from _check_weight(columns, most_bytes + _MOST_TIMES * len(stream))
    return Columns(batch, checked.schema)


def _check_weight(columns: Iterator[Any], most_bytes: int) -> Generator[None]:
    """Only the columns of which values may repeat are weighed: others have bytes for their values.
    Fields of a struct are weighed as columns are, also in lists, so that a step ends between them.
    """
    from penstock.formats.tables.weight import (  # noqa: PLC0415 (loads pyarrow.compute)
        LISTS,
        steps_at,
        weighing,
    )

    weight = weighed = 0
    levels = [columns]
    try:
        while levels:
            column = next(levels[-1], None)
            if column is None:
                levels.pop()
                continue
            if pa.types.is_struct(column.type):
                levels.append(map(column.field, range(column.type.num_fields)))
                continue
            if len(column) and (column.type.id in LISTS or pa.types.is_map(column.type)):
                first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
                levels.append(iter([column.values.slice(first, last - first)]))
                weight += len(column)
                continue
            if pa.types.is_fixed_size_list(column.type):
                size = column.type.list_size
                values = column.values.slice(column.offset * size, len(column) * size)
                levels.append(iter([values]))
                weight += len(column)
                continue
            weighed += 1
            if not weighed % _STEP_COLUMNS:
                yield
            if pa.types.is_dictionary(column.type):
                of_values = yield from weighing(column.dictionary)
                for number, step in enumerate(steps_at(of_values, column.indices)):
                    if number:
                        yield
                    weight += int(step.sum())
                continue
            weights = yield from weighing(column)
            weight += weights * len(column) if isinstance(weights, int) else int(weights.sum())
    except (pa.ArrowException, IndexError, MemoryError, OverflowError) as error:
        raise ValueError(f"values that cannot be weighed: {error}") from error
    if weight > most_bytes:
        raise ValueError(f"rows whose values, one by one, have {weight} bytes")


def _texts(rows: int, buffers: list[memoryview]) -> tuple[memoryview, Numbers]:
    body = buffers.pop()
    ends = _numbers(rows, buffers)
    is_ascending = rows == 1 or not (ends[1:] < ends[:-1]).any()
    if ends[-1] != len(body) or ends[0] < 0 or not is_ascending:
        raise ValueError("rows that do not add up")
    return body, ends


def _times(rows: int, buffers: list[memoryview]) -> Numbers:
    times = _numbers(rows, buffers)
    if not are_times(times):
        raise ValueError("times of no year")
    return times


def _numbers(rows: int, buffers: list[memoryview]) -> Numbers:
    values = np.frombuffer(buffers.pop(), "<i8")
    if len(values) != rows:
        raise ValueError(f"{len(values)} numbers for {rows} rows")
    return values
