"""Text of numbers to a float32 matrix, many rows at once and without a Python object per number.

Rule: the fast way may accept less than reading row by row, but never reads a number differently;
`None` means "not sure": the caller then reads the rows one by one. No state: any thread may call
it.
"""

import secrets
import threading
from collections.abc import Sequence
from contextvars import Context

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import simdjson
from pyarrow import csv as arrow_csv

from penstock.core.rows.payload import Float32Matrix

# Arrow would handle SIGINT and SIGTERM itself while it reads: it raises `ArrowCancelled` in the
# middle of an object instead of letting the worker drain. Switched off here, because every process
# that decodes imports this module.
pa.enable_signal_handlers(False)

# More than any decoder hands on at a time, except for one unfinished row.
LONG_BYTES = 5 << 18

# This number is put in for every newline, so that all rows are parsed as one list. If it is found
# behind every `columns` numbers and nowhere else, all rows have the same length. With 2 columns
# `1,2\n3,4\n` is parsed as `1,2,END,3,4,END`. Each process draws its own, so no object can contain
# it on purpose.
_ROW_END = b"%d.5e-30" % secrets.randbelow(10**9)
_ROW_END_VALUE = float(_ROW_END)
_BETWEEN_ROWS = b",%b," % _ROW_END
# As numbers: to look for bytes of one byte costs Python an exception each time.
_BRACKET, UNDERSCORE = b"[_"


def is_number(cell: bytes) -> bool:
    """Is the cell a number when its row is read alone?"""
    try:
        float(cell)
    except ValueError:
        return False
    return UNDERSCORE not in cell  # float() takes "1_000"


def parse_table(text: bytes, columns: int) -> Float32Matrix | None:
    """Lines of exactly `columns` comma-separated numbers, each ended by a newline."""
    # The parser would flatten `[1,[2]]` and accept it.
    if _BRACKET in text:
        return None
    # The parser needs 24 times the memory of a number's text. So long a text has one huge row, to
    # be parsed only if it has the right number of commas.
    if len(text) > LONG_BYTES and text.count(b",") != text.count(b"\n") * (columns - 1):
        return None
    flat = text.replace(b"\n", _BETWEEN_ROWS)
    try:
        array = simdjson.Parser().parse(b"".join((b"[", memoryview(flat)[:-1], b"]")))
        assert isinstance(array, simdjson.Array)
        numbers = array.as_buffer(of_type="d")
    except (ValueError, TypeError, RuntimeError):  # not JSON; not numbers; integers beyond 64 bits
        return None
    values = np.frombuffer(numbers, np.float64)
    if len(values) % (columns + 1):
        return None
    rows = values.reshape(-1, columns + 1)
    # There must be as many row ends as rows, or short rows would pass as fewer long ones with row
    # ends in place of cells.
    if len(flat) - len(text) != len(rows) * (len(_BETWEEN_ROWS) - 1):
        return None
    # `all()` of an array of comparisons takes 1 us more, as long as reading ten numbers.
    if np.count_nonzero(rows[:, columns] == _ROW_END_VALUE) != len(rows):
        return None
    return to_float32(rows[:, :columns])


def parse_columns(
    text: bytes, columns: int, chosen: Sequence[int], nulls: Sequence[str] = ()
) -> Float32Matrix | None:
    """The `chosen` of `columns` cells of CSV rows, quoted or not; other cells may hold anything.
    Cells that are one of `nulls` become NaN.
    """
    names = [str(index) for index in range(columns)]
    try:
        table = arrow_csv.read_csv(
            # Arrow would end a row at a lone carriage return; its replacement is no number either.
            pa.BufferReader(text.replace(b"\r", b"\x1f")),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=names, block_size=len(text) + 1
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(str(index) for index in chosen)),
                # float64 first, to round as the exact way does: from text to float64 to float32.
                column_types={name: pa.float64() for name in names},
                null_values=list(nulls),
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    matrix = np.empty((table.num_rows, len(chosen)), np.float64)
    for position, index in enumerate(chosen):
        matrix[:, position] = table.column(str(index)).to_numpy()
    # pyarrow takes "nan(anything)" for a number.
    if b"(" in text and np.isnan(matrix).any():
        return None
    return to_float32(matrix)


def to_float32(values: npt.NDArray[np.float64]) -> Float32Matrix:
    """Round to float32; too large numbers become infinite, as with `np.float32`."""
    return _quiet.context.run(values.astype, np.float32, order="C")


class _Quiet(threading.local):
    """A context in which numpy does not warn of too large numbers. One for each thread, as only one
    thread may be in it at a time. Entering it costs a tenth of `np.errstate`, which takes 2 us of
    an object.
    """

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(np.seterr, over="ignore")


_quiet = _Quiet()
