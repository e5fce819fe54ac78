"""`rows.keep` and `rows.time`: the columns that stay with a row, and the time of the row.

Rule: kept values never make a row bad: a missing column is null, and a time that cannot be read is
left out, and a notice tells why. Times are read as those of messages are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from penstock.core.rows.payload import NO_TIME, Kept
from penstock.formats.runs import RowOptions, Run
from penstock.messages.times import EARLIEST_MS, LATEST_MS, NoTime, read_time

_MISSING: Final = (None, "")

# A record must be one line, so newlines become blanks. This changes no value, because in JSON a
# newline is never part of a string.
ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
# orjson writes no more levels, and Python's own library reads at most some 990.
_MOST_DEPTH: Final = 254
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Buffer = bytes | msgspec.Raw
KeepRows = Callable[[Sequence[bytes]], Kept]
Row = TypeVar("Row")


def with_kept(
    runs: Iterable[Run], rows: Sequence[Row], keep: Callable[[Sequence[Row]], Kept]
) -> Iterator[Run]:
    """The same runs, each with the kept values of its rows. `rows`: all rows of the runs. `keep`: a
    function that finds the kept values of rows.
    """
    at = 0
    for run in runs:
        stop = at + run.rows
        yield run if run.payload is None else run._replace(kept=keep(rows[at:stop]))
        at = stop


def are_times(times: npt.NDArray[np.int64]) -> bool:
    """True if each is a time that a row may have, or says that the row has none."""
    is_time = (times >= EARLIEST_MS) & (times <= LATEST_MS)
    return bool((is_time | (times == NO_TIME)).all())


def of_json(options: RowOptions) -> KeepRows:
    """Returns a function that finds the kept values of rows of JSON. Rows that are not JSON objects
    have no kept values.
    """

    names = [(orjson.dumps(name), name) for name in dict.fromkeys(options.keep)]
    time = options.time
    wanted = options.stays

    def keep(rows: Sequence[bytes]) -> Kept:
        by_row = [_fields(row, wanted) for row in rows]
        return Kept.of(
            [_columns(names, fields) for fields in by_row] if names else None,
            moments((orjson.loads(bytes(fields.get(time, b"null"))) for fields in by_row), options)
            if time is not None
            else None,
        )

    return keep


def _fields(row: bytes, wanted: Collection[str]) -> Mapping[str, Buffer]:
    """The values of a JSON object, as they stand in its text. This keeps even numbers beyond 64
    bits.
    """
    if not row.lstrip().startswith(b"{"):
        return {}
    try:
        return _OBJECT.decode(row)
    except RecursionError:
        values = orjson.loads(row)
        # Not of all: each result of orjson holds 4 KiB, however short it is.
        return {name: _dumped(values[name]) for name in wanted if name in values}


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # the value is nested 255 deep: orjson can read it, but cannot write it
        return b"null"


def _not_deep(value: bytes) -> bytes:
    """The value as it stands, or null if it has so many levels that readers of records fail."""
    if value.count(b"[") + value.count(b"{") <= _MOST_DEPTH:
        return value
    try:
        orjson.dumps(orjson.loads(value))
    except (TypeError, ValueError):
        return b"null"
    return value


def _columns(names: Sequence[tuple[bytes, str]], fields: Mapping[str, Buffer]) -> bytes:
    text = b"{%b}" % b",".join([b"%b:%b" % (key, fields.get(name, b"null")) for key, name in names])
    if text.count(b"[") + text.count(b"{") > _MOST_DEPTH:
        flat = [(key, _not_deep(bytes(fields.get(name, b"null")))) for key, name in names]
        text = b"{%b}" % b",".join([b"%b:%b" % pair for pair in flat])
    return text.translate(ON_ONE_LINE) if b"\n" in text or b"\r" in text else text


def moments(values: Iterable[object], options: RowOptions) -> list[int | None]:
    """The times of the rows, from the values of their column. None: the value is missing, or it is
    no time; a notice tells why not.
    """
    return [None if value in _MISSING else _moment(value, options) for value in values]


def _moment(value: object, options: RowOptions) -> int | None:
    try:
        return read_time(value)
    except NoTime as why:
        options.notices.once(
            f'rows.time = "{options.time}": a value of the column {why}. Its row has the '
            "event_time of its reference"
        )
        return None
