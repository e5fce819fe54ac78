"""Reads text of numbers to a float32 matrix: many rows at once, without a Python object for each
number.

Rule: the functions that read in bulk may refuse (None) what could be read one by one, but never
read a number differently. Then `parse_halving` halves the block, so that a bad row slows down only
its neighbours; the last few rows are read one by one.
"""

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import simdjson
from pyarrow import csv as arrow_csv

from penstock.core.rows.payload import Float32Matrix, Matrix
from penstock.formats.runs import Run
from penstock.formats.text.lines import EXACT_ROWS, RawRows, count_rows, rows_of

# Arrow's signal handlers are switched off. With them, Arrow would handle SIGINT and SIGTERM itself
# while it reads: it would raise `ArrowCancelled` in the middle of an object, and the worker would
# not drain. This is done here because every process that decodes imports this module.
pa.enable_signal_handlers(False)

# A text of several rows is never longer than this, so a longer text is one huge row.
LONG_BYTES = 5 << 18

# This number, here called END, takes the place of every newline, so that all rows are parsed as one
# list. For example, `1,2\n3,4\n` is parsed as `1,2,END,3,4,END`. If END stands behind every
# `columns` numbers and nowhere else, all rows have the same length. Each process draws END by
# chance, so nobody can write an object that contains it.
_ROW_END = b"%d.5e-30" % secrets.randbelow(10**9)
_ROW_END_VALUE = float(_ROW_END)
_BETWEEN_ROWS = b",%b," % _ROW_END
# The signs are integers and not bytes, because at each `b"[" in text` Python would internally raise
# an exception and drop it.
_BRACKET, UNDERSCORE = b"[_"


def is_number(cell: bytes) -> bool:
    """True if the cell counts as a number when its row is read alone."""
    try:
        float(cell)
    except ValueError:
        return False
    return UNDERSCORE not in cell  # unlike us, float() accepts "1_000"


def parse_table(text: bytes, columns: int) -> Float32Matrix | None:
    """Reads lines of exactly `columns` comma-separated numbers; each line ends with a newline."""
    # Texts with brackets are refused, because the parser would read `[1,[2]]` as two numbers.
    if _BRACKET in text:
        return None
    # To parse a number takes 24 times the memory of its text. So one huge row is parsed only if it
    # has the right number of commas.
    if len(text) > LONG_BYTES and text.count(b",") != text.count(b"\n") * (columns - 1):
        return None
    flat = text.replace(b"\n", _BETWEEN_ROWS)
    try:
        array = simdjson.Parser().parse(b"".join((b"[", memoryview(flat)[:-1], b"]")))
        assert isinstance(array, simdjson.Array)
        numbers = array.as_buffer(of_type="d")
    # The text is not JSON, or does not have numbers only, or has integers beyond 64 bits.
    except (ValueError, TypeError, RuntimeError):
        return None
    values = np.frombuffer(numbers, np.float64)
    if len(values) % (columns + 1):
        return None
    rows = values.reshape(-1, columns + 1)
    # There must be as many row ends as rows. Without this check, short rows could pass for fewer,
    # longer rows, in which some row ends count as cells.
    if len(flat) - len(text) != len(rows) * (len(_BETWEEN_ROWS) - 1):
        return None
    # `all()` of the comparisons would take 1 us more, which is as long as reading ten numbers.
    if np.count_nonzero(rows[:, columns] == _ROW_END_VALUE) != len(rows):
        return None
    return to_float32(rows[:, :columns])


def parse_columns(
    text: bytes, columns: int, chosen: Sequence[int], nulls: Sequence[str] = ()
) -> Float32Matrix | None:
    """The `chosen` cells of CSV rows. A row has `columns` cells, and each may be quoted. The cells
    that are not chosen may hold anything. A cell that is one of `nulls` becomes NaN.
    """
    names = [str(index) for index in range(columns)]
    try:
        table = arrow_csv.read_csv(
            # Arrow would end a row at a lone carriage return. So carriage returns are replaced by a
            # character that neither ends a row nor belongs to a number.
            pa.BufferReader(text.replace(b"\r", b"\x1f")),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=names, block_size=len(text) + 1
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(str(index) for index in chosen)),
                # The type is not float32 yet. Rows that are read one by one are rounded to float64
                # and then to float32, and both ways must give the same numbers.
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
    # pyarrow would accept "nan(anything)" as a number.
    if b"(" in text and np.isnan(matrix).any():
        return None
    return to_float32(matrix)


def join_floats(rows: list[list[float]]) -> Matrix:
    return Matrix(to_float32(np.array(rows, np.float64)))


def to_float32(values: npt.NDArray[np.float64]) -> Float32Matrix:
    """Round to float32. As with `np.float32`, a number that is too large becomes infinite."""
    return _quiet.context.run(values.astype, np.float32, order="C")


class _Quiet(threading.local):
    """A context in which numpy does not warn of numbers that are too large. Each thread has its own
    such context, because two threads cannot be in one context at the same time. `np.errstate` would
    take 2 us for each object; to enter this context takes a tenth of that.
    """

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(np.seterr, over="ignore")


_quiet = _Quiet()


def parse_halving(
    block: RawRows,
    bulk: Callable[[RawRows], Run | None],
    exact: Callable[[list[bytes]], Iterator[Run]],
) -> Iterable[Run]:
    """Read all rows at once by the function `bulk`. If `bulk` returns None, halve the block and try
    each half. When only a few rows are left in a part, they are read one by one, by the function
    `exact`.
    """
    run = bulk(block)
    if run is not None:
        return (run,)
    rows = count_rows(block)
    if rows <= EXACT_ROWS:
        return exact(rows_of(block))
    both = halves(block, rows)
    return chain.from_iterable(parse_halving(half, bulk, exact) for half in both)


def halves(block: RawRows, rows: int) -> tuple[RawRows, RawRows]:
    if isinstance(block, list):
        return block[: rows // 2], block[rows // 2 :]
    # The middle of the bytes is found faster than the middle of the lines. If the last line is
    # longer than all lines before it together, it alone is the second half.
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, -1) + 1
    return block[:middle], block[middle:]


def portions(block: RawRows, most_rows: int) -> Iterator[RawRows]:
    """The block in pieces of at most `most_rows` rows."""
    rows = count_rows(block)
    if rows <= most_rows:
        yield block
    else:
        for half in halves(block, rows):
            yield from portions(half, most_rows)
