"""Reads npy: the first axis is the rows, all others together the numbers of a row.

Rule: nothing is unpickled, and memory is taken only for bytes that have come. An object is read by
ranges, without unwanted rows; members of archives and packed data as a stream, in Fortran's order
only if small. Layout: numpy.lib.format, NEP 1.
"""

import io
import math
from collections.abc import Iterator
from tokenize import TokenError
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.json import Encoder

from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import Poison
from penstock.formats.first_bytes import no_such
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import ObjectSource, Wanted

MAGIC: Final = b"\x93NUMPY"
# A header may have at most this many bytes, which is numpy's own limit.
MOST_HEADER_BYTES: Final = 10_000
# The errors that numpy raises for a wrong header. They are so many because numpy reads the header
# as a literal of Python.
_NO_HEADER: Final = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)
_BLOCK_BYTES: Final = 1 << 20
_ENCODER: Final = Encoder()
_LINE_FEED: Final = ord("\n")
_FLOAT64: Final = np.dtype(np.float64)
# In Fortran's order the numbers of a row are spread over the whole array. So an array that is read
# as a stream is held as a whole, and may have at most this many bytes.
MOST_HELD_BYTES: Final = 16 << 20
_FORTRAN_BLOCK_BYTES: Final = 4 << 20


class _Header(NamedTuple):
    begin: int
    """Where the values begin."""
    rows: int
    trailing: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def width(self) -> int:
        return math.prod(self.trailing)

    @property
    def row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def block_rows(self) -> int:
        nbytes = _FORTRAN_BLOCK_BYTES if self.fortran else _BLOCK_BYTES
        return max(1, nbytes // max(1, self.row_bytes))


def looks(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read_npy(ranges: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
    head = ranges.read(0, MOST_HEADER_BYTES + 12)
    if not head.startswith(MAGIC[: len(head)]):
        raise no_such("npy file", head)
    header = _parse(head, options)
    if header is None:
        raise Poison("bad_format", "the npy file breaks off")
    if ranges.size - header.begin != header.nbytes:
        raise Poison(
            "bad_format",
            f"the npy header promises {header.nbytes} bytes, {ranges.size - header.begin} follow",
        )
    for start in range(0, header.rows, header.block_rows):
        stop = min(header.rows, start + header.block_rows)
        if wanted(start, stop):
            yield _run(_read_block(ranges, header, start, stop), options)
        else:
            yield Run(stop - start, None)


def _read_block(ranges: ObjectSource, header: _Header, start: int, stop: int) -> npt.NDArray[Any]:
    rows = stop - start
    if header.fortran:
        item_bytes = header.dtype.itemsize
        places = [column * header.rows + start for column in range(header.width)]
    else:
        item_bytes, places = header.row_bytes, [start]
    firsts = [header.begin + place * item_bytes for place in places]
    parts = [ranges.read(first, first + rows * item_bytes) for first in firsts]
    return _values(b"".join(parts), header, rows)


def _values(data: bytes, header: _Header, rows: int) -> npt.NDArray[Any]:
    values = np.frombuffer(data, header.dtype)
    if header.fortran:
        values = values.reshape((rows, *header.trailing), order="F")
    return values.reshape(rows, header.width)


class NpyParser(Parser):
    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._held = bytearray()
        self._header: _Header | None = None
        self._left = 0

    def feed(self, data: bytes) -> Iterator[Run]:
        self._held += data
        if self._header is None:
            self._header = _parse(bytes(self._held[: MOST_HEADER_BYTES + 12]), self._options)
            if self._header is None:
                return
            del self._held[: self._header.begin]
            self._left = self._header.rows
            if self._header.fortran and self._header.nbytes > MOST_HELD_BYTES:
                raise Poison(
                    "too_large",
                    f"{self._header.nbytes} bytes in Fortran's order inside an archive or gzip "
                    f"data, at most {MOST_HELD_BYTES} are read; store it as an object of its own",
                )
        yield from self._rows(self._header)

    def close(self) -> Iterator[Run]:
        if self._header is None or self._left or self._held:
            what = (
                "something follows the array"
                if self._header and not self._left
                else "it breaks off"
            )
            raise Poison("bad_format", f"the npy file does not end where it should: {what}")
        return iter(())

    def _rows(self, header: _Header) -> Iterator[Run]:
        rows = min(self._left, len(self._held) // header.row_bytes)
        if rows and (rows == header.rows or not header.fortran):
            data = bytes(self._held[: rows * header.row_bytes])
            del self._held[: len(data)]
            self._left -= rows
            yield _run(_values(data, header, rows), self._options)


def _parse(head: bytes, options: RowOptions) -> _Header | None:
    """The header; None: more bytes are needed."""
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise no_such("npy file", None)
    file = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file, max_header_size=MOST_HEADER_BYTES)
    except KeyError:
        raise Poison("bad_format", "an npy file of a version that is not read") from None
    except _NO_HEADER as error:
        if len(head) < MOST_HEADER_BYTES and "EOF" in str(error):
            return None
        # The error's text must be the same at each try. Behind `: <` it may have a memory address,
        # so that part is cut off.
        reason = str(error).partition("\n")[0].partition(": <")[0]
        raise Poison("bad_format", f"the npy header cannot be read: {reason}") from None
    return _checked(
        _Header(file.tell(), *_shape(shape), fortran and len(shape) > 1, dtype), options
    )


def _shape(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    if any(not 0 <= length < 2**63 for length in shape):
        raise Poison("bad_format", f"an npy array of the shape {shape}")
    return (shape[0], shape[1:]) if shape else (1, ())


def _checked(header: _Header, options: RowOptions) -> _Header:
    if header.dtype.kind not in "biuf" or header.dtype.hasobject:
        raise Poison("bad_format", f"the npy array holds {header.dtype}, no numbers")
    if not header.width:
        raise Poison("bad_format", "the rows of the npy array hold no numbers")
    if header.width > options.max_columns:
        raise Poison(
            "too_large",
            f"a row has {header.width} numbers, at most {options.max_columns} are read "
            "(limits.columns)",
        )
    if header.row_bytes > options.row_bytes:
        raise Poison(
            "too_large",
            f"a row has {header.row_bytes} bytes, at most {options.row_bytes} are read "
            "(limits.row_bytes)",
        )
    return header


def _run(values: npt.NDArray[Any], options: RowOptions) -> Run:
    if options.columns is not None:
        values = values[:, _chosen(options, values.shape[1])]
    if options.form == "json":
        # These values are long doubles, but Python's float has 64 bits.
        if values.dtype.itemsize > _FLOAT64.itemsize:
            with np.errstate(over="ignore"):
                values = values.astype(_FLOAT64)
        # At once: each result of orjson holds 4 KiB, and a block has up to a million rows.
        lines = _ENCODER.encode_lines(values.tolist())
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _LINE_FEED)
        return Run(len(values), JsonRows(lines[:-1].replace(b"\n", b","), ends))
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.ascontiguousarray(values.astype(np.float32))
    if options.missing is not None:
        numbers[np.isnan(numbers)] = options.missing
    return Run(len(numbers), Matrix(numbers))


def _chosen(options: RowOptions, width: int) -> list[int]:
    for column in options.columns or ():
        if not isinstance(column, int) or not 0 <= column < width:
            raise Poison(
                "bad_format",
                f"no column {column} in the npy array: its columns have no names but numbers, 0 to "
                f"{width - 1}",
            )
    return [int(column) for column in options.columns or ()]
