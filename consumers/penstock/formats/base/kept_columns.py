"""`rows.keep` and `rows.time`: the columns that stay with a row, and the time of the row.

Rule: kept values never make a row bad: a missing column is null, and a time that cannot be read is
left out. A number is a time in epoch seconds, milliseconds, microseconds or nanoseconds, by its
magnitude. A text is a time in ISO-8601; if it has no zone, it is in UTC. Owner: the parser of one
object.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec
import orjson

from penstock.core.rows.payload import Kept
from penstock.formats.base.runs import RowOptions, Run

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
EARLIEST_MS: Final = -62_135_596_800_000  # the years 1 to 9999
LATEST_MS: Final = 253_402_300_799_999
# Each limit with its unit in milliseconds. A number below 1e11 counts seconds (which reach up to
# the year 5138). A number from 1e11 to 1e14 counts milliseconds (which begin in 1973), and so on.
_UNITS: Final = ((1e11, 1000.0), (1e14, 1.0), (1e17, 1e-3), (math.inf, 1e-6))

# A record must be one line, so newlines become blanks. This changes no value, because in JSON a
# newline is never part of a string.
ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
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


def of_json(options: RowOptions) -> KeepRows:
    """Returns a function that finds the kept values of rows of JSON. Rows that are not JSON objects
    have no kept values.
    """

    names = [(orjson.dumps(name), name) for name in dict.fromkeys(options.keep)]
    time = options.time

    def keep(rows: Sequence[bytes]) -> Kept:
        found = [_fields(row) for row in rows]
        return Kept.of(
            [_columns(names, fields) for fields in found] if names else None,
            [moment_ms(orjson.loads(bytes(fields.get(time, b"null")))) for fields in found]
            if time is not None
            else None,
        )

    return keep


def _fields(row: bytes) -> Mapping[str, Buffer]:
    """The values of a JSON object, as they stand in its text. This keeps even numbers beyond 64
    bits.
    """
    if not row.lstrip().startswith(b"{"):
        return {}
    try:
        return _OBJECT.decode(row)
    except RecursionError:
        return {name: _dumped(value) for name, value in orjson.loads(row).items()}


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # the value is nested 255 deep: orjson can read it, but cannot write it
        return b"null"


def _columns(names: Sequence[tuple[bytes, str]], fields: Mapping[str, Buffer]) -> bytes:
    text = b"{%b}" % b",".join([b"%b:%b" % (key, fields.get(name, b"null")) for key, name in names])
    return text.translate(ON_ONE_LINE) if b"\n" in text or b"\r" in text else text


def moment_ms(value: object) -> int | None:
    """A column's value as epoch milliseconds; None if it is not a time."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, datetime):
        return _of_moment(value)
    if isinstance(value, int | float) and abs(value) < math.inf:
        factor = next(factor for limit, factor in _UNITS if abs(value) < limit)
        found = math.floor(value * factor)
        return found if EARLIEST_MS <= found <= LATEST_MS else None
    return None


def _of_text(text: str) -> int | None:
    try:
        return moment_ms(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return _of_moment(moment)


def _of_moment(moment: datetime) -> int | None:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # If a local time in the year 1 or 9999 is converted to UTC, it may lie outside the allowed
    # years.
    found = (moment - _EPOCH) // _MS
    return found if EARLIEST_MS <= found <= LATEST_MS else None
