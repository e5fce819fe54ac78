"""Reads times as senders write them: `event_time`, and the columns of `rows.time`.

Rule: a value has one meaning, or it is no time. The size of a number tells its unit; digits that
are a date are this date, unless they may as well be a number of a unit (the table in
docs/messages.md). On outputs a number is always epoch milliseconds.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The years 1 to 9999, which are the range of ISO-8601 and `datetime`.
EARLIEST_MS: Final = -62_135_596_800_000
LATEST_MS: Final = 253_402_300_799_999
# A time may have at most this many characters. ISO-8601 allows any number of decimals of a second;
# with nine decimals and a zone a time has 35 characters.
MAX_TIME_CHARS: Final = 64

_MS: Final = timedelta(milliseconds=1)
# A smaller number may be seconds or milliseconds of the year 1970, a day of a spreadsheet, or a
# year.
_SMALLEST: Final = 10**8
# For each unit its limit, and how many milliseconds, or which part of one, it has. In each unit the
# times of the years 1973 to 5138 are below the limit of the unit and above that of the one before.
_UNITS: Final = ((10**11, 1000, 1), (10**14, 1, 1), (10**17, 1, 1000), (10**20, 1, 1_000_000))
# How many digits a date has from the day on to its hour, minute, second, and three or six decimals.
_DATES: Final = (8, 10, 12, 14, 17, 20)
# If digits of these lengths were a number of a unit, this would be a time after the year 2500. So
# they are a date.
_SURELY_DATES: Final = (14, 17, 20)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

# A date and a time of day in a name, where colons are rarely allowed, with other separators than
# those of ISO-8601, or none: 20261129_100203.417, 2026-11-29T10-02-03Z, 2026/11/29/10/02.
_IN_NAME = re.compile(
    r"(\d{4})[-_./]?(\d\d)[-_./]?(\d\d)[-_./ Tt]?(\d\d)[-_.:/]?(\d\d)"
    r"(?:[-_.:/]?(\d\d)(?:[._,](\d{1,9})|-(\d{3}|\d{6}))?)?([Zz]|[+-]\d\d:?\d\d)?"
)
# As ISO-8601, such a text ends with an hour and a zone; in a name these are an hour and a minute.
_HOUR_MINUTE = re.compile(r".{5,}[^\d:.,]\d\d-\d\d")

_NO_TIME: Final = "is neither epoch milliseconds nor ISO-8601"
_TOO_FAR: Final = "lies beyond the years 1 to 9999; give epoch milliseconds"
_TOO_SMALL: Final = "is too small a number to tell its unit; give epoch milliseconds or ISO-8601"
_TWO_TIMES: Final = "may be the digits of a date, or a time since 1970; give ISO-8601"


class NoTime(ValueError):
    """A value is no time. The error's text is the end of a sentence that begins with the value."""


def read_time(value: object, *, in_message: bool = False) -> int:
    """The value as epoch milliseconds. `in_message`: True if it is the `event_time` of a message.
    Such numbers are milliseconds, except those that are more likely seconds or a date. Raises
    `NoTime`.
    """
    if type(value) is int and 10**12 <= value < 10**13:  # milliseconds of 2001 to 2286
        return value
    if isinstance(value, str):
        text = value.strip()
        if len(text) > MAX_TIME_CHARS or not _NUMBER.fullmatch(text):
            return _of_text(text)
        number = int(text) if text.lstrip("+-").isdigit() else float(text)
        return _of_number(number, in_message=in_message and abs(number) >= _SMALLEST)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_number(value, in_message=in_message)
    if isinstance(value, datetime):
        return _of_moment(value)
    if isinstance(value, date):
        return _of_moment(datetime(value.year, value.month, value.day, tzinfo=UTC))
    raise NoTime(_NO_TIME)


def time_in_name(text: str) -> int:
    """The time that a part of an object's key states, as epoch milliseconds: what `read_time`
    reads, or a date and a time of day with any separators, or none. Raises `NoTime`.
    """
    if _NUMBER.fullmatch(text):
        is_date = text.isdecimal() and len(text) in _DATES
        time_ms = _of_digits(text) if is_date else None
        return read_time(text) if time_ms is None else time_ms
    parts = _IN_NAME.fullmatch(text)
    if parts is None:
        if _HOUR_MINUTE.fullmatch(text):
            raise NoTime(_NO_TIME)
        return read_time(text)
    year, month, day, hour, minute, second, point, dash, zone = parts.groups(default="")
    decimals = (point or dash)[:6].ljust(6, "0")
    clock = f"{hour}:{minute}:{second or '00'}.{decimals}{zone.upper()}"
    return _of_text(f"{year}-{month}-{day}T{clock}")


def same_time(time_ms: int) -> int | str:
    """The time as a message's `event_time` that means the same: epoch milliseconds, or ISO-8601 if
    the number would be read as another time.
    """
    try:
        if read_time(time_ms, in_message=True) == time_ms:
            return time_ms
    except NoTime:
        pass
    return (EPOCH + time_ms * _MS).isoformat(timespec="milliseconds")


def iso_time(time_ms: int) -> str:
    """Epoch milliseconds as ISO-8601, for readers that are no programs."""
    moment = EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_ms(event_time: object) -> int | None:
    """A time as it stands on an output: epoch milliseconds, or ISO-8601. None: the value is not a
    time, or not within the years 1 to 9999.
    """
    if type(event_time) is int:
        return event_time if EARLIEST_MS <= event_time <= LATEST_MS else None
    try:
        return _of_text(event_time) if isinstance(event_time, str) else None
    except NoTime:
        return None


def _of_number(number: float, *, in_message: bool) -> int:
    size = abs(number)
    if not size < _UNITS[-1][0]:  # this is also true of "not a number"
        raise NoTime(_TOO_FAR)
    digits, is_whole = str(int(number)), number == int(number)
    is_date = len(digits) in (_DATES if is_whole else _SURELY_DATES)
    if is_date and (time_ms := _of_digits(digits)) is not None:
        if is_whole and (len(digits) in _SURELY_DATES or (size < _SMALLEST and not in_message)):
            return time_ms
        raise NoTime(_TWO_TIMES)
    if size < _SMALLEST and not in_message:
        raise NoTime(_TOO_SMALL)
    many, few = next(unit for limit, *unit in _UNITS if size < limit)
    if in_message and not _SMALLEST <= size < _UNITS[1][0]:
        many = few = 1
    # A fraction is rounded to microseconds first, because floats are often a little too small.
    ms = number * many // few if isinstance(number, int) else round(number * many / few, 3) // 1
    if not EARLIEST_MS <= ms <= LATEST_MS:
        raise NoTime(_TOO_FAR)
    return int(ms)


def _of_digits(digits: str) -> int | None:
    """The date of the years 1900 to 2099 that these digits are; None: they are none."""
    if not digits.startswith(("19", "20")):
        return None
    month, day, hour, minute, second = (int(digits[at : at + 2] or 0) for at in range(4, 14, 2))
    microsecond = int(digits[14:].ljust(6, "0"))
    try:
        moment = datetime(int(digits[:4]), month, day, hour, minute, second, microsecond, UTC)
    except ValueError:
        return None
    return _of_moment(moment)


def _of_text(text: str) -> int:
    if len(text) > MAX_TIME_CHARS:
        raise NoTime(_NO_TIME)
    try:
        return _of_moment(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise NoTime(_NO_TIME) from None


def _of_moment(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # A time zone can move the time to a few hours outside the allowed years.
    return min(max((moment - EPOCH) // _MS, EARLIEST_MS), LATEST_MS)
