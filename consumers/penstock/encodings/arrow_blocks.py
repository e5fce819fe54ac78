"""Answers as Arrow blocks: each Kafka record is an Arrow IPC stream with several rows of an object.

Rule: a block has all fields that the records of its rows would have; common ones stand once, in the
schema's metadata (`BlockHead`), and a column but `row` and `prediction` is there only if a row has
a value in it. A block is never larger than the topic accepts: one of a single row that is too large
gets an error instead of the answer, then loses the attributes, then the object's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa

from penstock.core.progress.order import Release
from penstock.core.records.failed_rows import (
    Error,
    Failed,
    Form,
    error_of,
    failed_rows,
    middle,
    published_rows,
    too_large,
    unpublished,
)
from penstock.core.records.output_records import Encoded, Fits, Labels, Records, ends_alone
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection
from penstock.encodings.base import AnsweredRows
from penstock.encodings.columns import SCHEMA, batch_of, batch_of_blocks
from penstock.messages.prediction import Result, decode_head

# The key under which the head stands in the metadata of the Arrow schema.
HEAD: Final = b"penstock.block"
# The key in the metadata of a block without rows. Its value is a record in JSON: a marker, or the
# record of a result.
RECORD: Final = b"penstock.record"
_ALWAYS: Final = ("row", "prediction")
# A message of length 0. It ends an Arrow stream.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
_NO_ROWS: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, SCHEMA.field(name).type) for name in _ALWAYS],
    schema=pa.schema([SCHEMA.field(name) for name in _ALWAYS]),
)


def block(head: bytes, rows: Any) -> bytes:
    """A block with these rows. `head`: the bytes that `RecordFrame.head` returns. `rows`: a batch
    with the columns of `SCHEMA`.
    """
    return _written(HEAD, head, needed(rows))


def needed(rows: Any) -> Any:
    """The batch without the columns in which no row has a value."""
    names = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if name in _ALWAYS or column.null_count < len(column)
    ]
    return rows.select(names)


def alone(record: bytes) -> bytes:
    """A block without rows, for a marker or the record of a result."""
    return _written(RECORD, record, _NO_ROWS)


def _written(key: bytes, about: bytes, rows: Any) -> bytes:
    """Write an Arrow stream, one message after the other. This is possible because no column has a
    dictionary. pyarrow's own stream writer gives the same bytes, but takes twice as long for a
    small block.
    """
    schema = rows.schema.with_metadata({key: about})
    return b"".join((schema.serialize(), rows.serialize(), _END_OF_STREAM))


# A block without rows is larger than the JSON record in it by at most this many bytes, of which 64
# are for padding.
FRAME_BYTES: Final = len(alone(b"")) + 64


def records(value: bytes) -> Iterator[bytes]:
    """The records of a block as JSON, each as if it were alone in a value. Raises `ValueError`, or
    one of pyarrow's own errors, if the block cannot be read.
    """
    with pa.ipc.open_stream(value) as reader:
        batches = list(reader)
        about = reader.schema.metadata or {}
    if RECORD in about:
        yield about[RECORD]
        return
    if HEAD not in about:
        raise ValueError("an Arrow stream, but no block of predictions")
    head = msgspec.to_builtins(decode_head(about[HEAD]))
    is_last, last_rows = head.pop("last"), head.pop("rows")
    for number, batch in enumerate(batches, 1):
        batch.validate(full=True)
        rows = _plain(batch).to_pylist()
        for index, row in enumerate(rows, 1):
            is_end = is_last and number == len(batches) and index == len(rows)
            yield _record(head, row, last_rows if is_end else None)


def _halves(value: bytes) -> Sequence[bytes]:
    about, rows = _opened(value)
    if rows.num_rows < 2:
        return [value]
    at, head = middle(rows.num_rows), about[HEAD]
    return [
        block(_without(head, "last", "rows"), rows.slice(0, at)),
        block(head, rows.slice(at)),
    ]


def _error(value: bytes, why: Rejection) -> Error | None:
    about, rows = _opened(value)
    if RECORD in about:
        error = error_of(about[RECORD], why)
        return error and error._replace(value=alone(error.value))
    (row,) = _plain(rows).to_pylist()
    if row.get("error_code") is not None:
        return None
    number, member = row["row"], row.get("member")
    made = batch_of(AnsweredRows(number, [b"null"], member, {0: why}))
    return Error(block(_without(about[HEAD], "attributes"), made), number, member)


def _opened(value: bytes) -> tuple[Mapping[bytes, bytes], Any]:
    """The metadata and the rows of a block of ours, which has one batch."""
    with pa.ipc.open_stream(value) as reader:
        return reader.schema.metadata, reader.read_next_batch()


def _without(head: bytes, *names: str) -> bytes:
    fields = msgspec.json.decode(head)
    return msgspec.json.encode({name: each for name, each in fields.items() if name not in names})


OF_BLOCKS: Final = Form(_halves, _error)


def _plain(batch: Any) -> Any:
    """The batch with times as numbers, because Python's `datetime` cannot hold all of them."""
    if "event_time" not in batch.schema.names:
        return batch
    place = batch.schema.get_field_index("event_time")
    return batch.set_column(place, "event_time", batch.column(place).cast(pa.int64()))


def _record(head: dict[str, Any], row: dict[str, Any], last_rows: int | None) -> bytes:
    columns, code = row.get("columns"), row.get("error_code")
    own = {
        "id": f"{head['id']}/{row['row']}",
        "row": row["row"],
        "member": row.get("member"),
        "last": True if last_rows is not None else None,
        "rows": last_rows,
        "columns": None if columns is None else orjson.Fragment(columns),
        "error": None if code is None else {"code": code, "message": row["error_message"]},
    }
    if row.get("event_time") is not None:
        own["event_time"] = row["event_time"]
    values = {name: value for name, value in (head | own).items() if value is not None}
    return orjson.dumps(
        values
        | {"object": head["object"], "prediction": orjson.Fragment(row["prediction"] or "null")}
    )


class ArrowRecords(Records):
    """Implements `Records` by Arrow blocks, with up to `most_rows` rows in each value."""

    def __init__(
        self,
        labels: Labels,
        fits: Fits,
        most_rows: int,
        *,
        of_rows: bool = True,
        of_objects: bool = False,
    ) -> None:
        super().__init__(
            labels,
            lambda key, nbytes: fits(key, nbytes + FRAME_BYTES),
            of_rows=of_rows,
            of_objects=of_objects,
        )
        self._takes = fits
        self._most_rows = most_rows

    def encode(self, release: Release) -> Encoded:
        ticket = release.ticket
        out = Encoded([], list(failed_rows(release)))
        if self._of_rows and release.blocks:
            rows = batch_of_blocks(release.blocks).slice(published_rows(release))
            self._add_blocks(ticket, rows, _last_rows(release), out)
            out.failed.sort(key=lambda failed: failed.row or 0)
        if ticket.published_rows:
            out = Encoded(out.values, unpublished(ticket, out.failed))
        if ends_alone(release):
            marker = Encoded([], out.failed)
            self._add_end(ticket, marker)
            out.values.extend(map(alone, marker.values))
        return out

    def object_record(self, ticket: Ticket, result: Result) -> bytes:
        return alone(super().object_record(ticket, result))

    def _add_blocks(self, ticket: Ticket, rows: Any, last_rows: int | None, out: Encoded) -> None:
        """Encode the batch `rows` as blocks, and add them to `out`. `last_rows`: the object's row
        count, if the last row of the batch is the object's last row.
        """
        frame, key = self._frame_of(ticket), ticket.stream.encode()
        start, most = 0, self._most_rows
        # Columns without values are dropped once for all blocks together, because there may be many
        # small blocks.
        slim = needed(rows)
        while start < rows.num_rows:
            count = min(most, rows.num_rows - start)
            last = last_rows if start + count == rows.num_rows else None
            value = block(frame.head(last), slim.slice(start, count))
            if self._takes(key, len(value)):
                start += count
            elif count > 1:  # later blocks are most likely too large, too
                most = count // 2
                continue
            else:
                value = self._too_large(ticket, rows.slice(start, 1), last, len(value), out)
                start += 1
            out.values.append(value)

    def _too_large(
        self, ticket: Ticket, row: Any, last_rows: int | None, nbytes: int, out: Encoded
    ) -> bytes:
        """The block of a single row, if a block with the row's answer would be too large. It has an
        error instead of the answer, and its head is shortened until the block fits.
        """
        number, member = row["row"][0].as_py(), row["member"][0].as_py()
        code, message = row["error_code"][0].as_py(), row["error_message"][0].as_py()
        if code is None:
            why = too_large(nbytes)
            out.failed.append(Failed(number, 1, member, why))
        else:
            why = Rejection(code, message, "publish")
        row = batch_of(AnsweredRows(number, [b"null"], member, {0: why}))
        value = b""
        for frame in self._frames(ticket):
            value = block(frame.head(last_rows), row)
            if self._takes(ticket.stream.encode(), len(value)):
                break
        return value


def _last_rows(release: Release) -> int | None:
    """The object's row count if the release ends with the object's last row; else None."""
    ticket = release.ticket
    is_last = release.finished and release.blocks[-1].next is None and ticket.failure is None
    return ticket.rows if is_last else None
