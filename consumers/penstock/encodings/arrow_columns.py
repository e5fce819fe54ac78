"""Answers as columns, for Parquet and Arrow.

Rule: the columns are the same for every object and every model: `prediction` is JSON text, so that
no row can contradict the types of an earlier one. Owner: the formats made of columns.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.rows.blocks import Block
from penstock.encodings.base import Rows, columns_of, rows_of, times_of
from penstock.messages.prediction import encodable, printable

SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("member", pa.string()),
        pa.field("event_time", pa.timestamp("ms", "UTC")),
        pa.field("prediction", pa.string()),
        pa.field("columns", pa.string()),
        pa.field("error_code", pa.string()),
        pa.field("error_message", pa.string()),
    ]
)


def batch_of(rows: Rows) -> pa.RecordBatch:
    count = len(rows.answers)
    member = None if rows.member is None else encodable(rows.member)
    texts: list[bytes | None] = list(rows.answers)
    codes: list[str | None] | None = None
    messages: list[str | None] = []
    if rows.errors:
        codes, messages = [None] * count, [None] * count
        for index, why in rows.errors.items():
            texts[index], codes[index] = None, why.code
            messages[index] = printable(why.message)
    nothing = pa.nulls(count, pa.string())
    columns, times = rows.kept and rows.kept.columns, rows.kept and rows.kept.times
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(rows.first_row, rows.first_row + count, dtype=np.int64)),
            nothing if member is None else pa.array([member] * count, pa.string()),
            pa.array(times_of(rows), pa.timestamp("ms", "UTC"))
            if times is not None
            else pa.nulls(count, pa.timestamp("ms", "UTC")),
            pa.array(texts, pa.string()),
            nothing if columns is None else pa.array(columns_of(rows), pa.string()),
            nothing if codes is None else pa.array(codes, pa.string()),
            nothing if codes is None else pa.array(messages, pa.string()),
        ],
        schema=SCHEMA,
    )


def batch_of_blocks(blocks: Iterable[Block]) -> pa.RecordBatch:
    """One batch with the rows of all blocks."""
    batches = [batch_of(rows_of(block)) for block in blocks]
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
