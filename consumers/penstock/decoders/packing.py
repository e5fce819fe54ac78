"""Packs runs of rows into a message from a decoder to its worker: a header, then arrays as they lie
in memory.

Rule: the worker does not trust the message, and refuses it if its lengths do not add up. The arrays
of the worker are views of the message, not copies. Owner: the two ends of one decoder's socket.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Kept, Matrix, Payload
from penstock.formats.base.runs import Run

# The size of a cache line. Arrays begin at multiples of it.
_ALIGNED_BYTES: Final = 64
_LENGTH_BYTES: Final = 4
_SPACE: Final = bytes(_ALIGNED_BYTES)

Buffer = bytes | memoryview


class _Head(msgspec.Struct, array_like=True):
    """One run in the header. `kind`: the kind of its payload; `width`: the number of columns of a
    matrix; `schema`: the schema of Arrow columns; `lengths`: the lengths of the run's arrays, in
    the order in which they follow the header.
    """

    rows: int
    kind: Literal["matrix", "json", "bytes", "columns", "none"]
    width: int
    schema: str
    error: str | None
    member: str | None
    has_columns: bool
    has_times: bool
    has_since: bool
    lengths: list[int]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[_Head])


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
    head = _Head(run.rows, "none", 0, "", run.error, run.member, False, False, False, [])
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
        case Columns(batch, schema):
            head.kind, head.schema = "columns", schema
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch)
            return [memoryview(out.getvalue())]
    raise TypeError(f"rows of {type(payload).__name__}")


def _raw(values: npt.NDArray[Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def unpacked(message: memoryview) -> list[Run]:
    """The runs of a message. Raises `ValueError` if its lengths do not add up."""
    header_bytes = int.from_bytes(message[:_LENGTH_BYTES], "little")
    at = _LENGTH_BYTES + header_bytes
    try:
        heads = _DECODER.decode(message[_LENGTH_BYTES:at])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    at += -at % _ALIGNED_BYTES

    def take(nbytes: int) -> memoryview:
        nonlocal at
        if nbytes < 0 or at + nbytes > len(message):
            raise ValueError("rows that break off")
        found = message[at : at + nbytes]
        at += nbytes + -nbytes % _ALIGNED_BYTES
        return found

    return [_run(head, take) for head in heads]


def _run(head: _Head, take: Callable[[int], memoryview]) -> Run:
    buffers = [take(nbytes) for nbytes in head.lengths][::-1]  # so `pop` takes the first
    if head.rows < 1 or (head.kind == "none" and head.width):
        raise ValueError(f"a run of {head.rows} rows")
    payload = _payload(head, buffers)
    columns = JsonRows(*_texts(head.rows, buffers)) if head.has_columns else None
    times = _numbers(head.rows, buffers) if head.has_times else None
    since_ms = _numbers(head.rows, buffers) if head.has_since else None
    kept = Kept(columns, times) if head.has_columns or head.has_times else None
    return Run(head.rows, payload, head.error, head.member, kept, since_ms)


def _payload(head: _Head, buffers: list[memoryview]) -> Payload | None:
    if head.kind == "none":
        return None
    if head.error is not None:
        raise ValueError("rows that are good and bad")
    if head.kind == "matrix":
        values = np.frombuffer(buffers.pop(), "<f4")
        return Matrix(values.reshape(head.rows, head.width))
    if head.kind == "json":
        return JsonRows(*_texts(head.rows, buffers))
    if head.kind == "bytes":
        return BytesRows(*_texts(head.rows, buffers))
    with pa.ipc.open_stream(pa.py_buffer(buffers.pop())) as reader:
        batch = reader.read_next_batch()
    batch.validate()
    if batch.num_rows != head.rows:
        raise ValueError(f"{batch.num_rows} rows of {head.rows}")
    return Columns(batch, head.schema)


def _texts(rows: int, buffers: list[memoryview]) -> tuple[memoryview, npt.NDArray[np.int64]]:
    body = buffers.pop()
    ends = _numbers(rows, buffers)
    if ends[-1] != len(body) or ends[0] < 0 or (np.diff(ends) < 0).any():
        raise ValueError("rows that do not add up")
    return body, ends


def _numbers(rows: int, buffers: list[memoryview]) -> npt.NDArray[np.int64]:
    values = np.frombuffer(buffers.pop(), "<i8")
    if len(values) != rows:
        raise ValueError(f"{len(values)} numbers for {rows} rows")
    return values
