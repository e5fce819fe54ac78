"""An option's value that is a point in time: ISO-8601, or an age like `15m`."""

import re
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Moment(NamedTuple):
    """A point in time, and how it was written."""

    text: str
    ms: int


class When(click.ParamType):
    """ISO-8601 (UTC by default), or an age like `90s`, `15m`, `2h`, `7d`; converted to epoch
    milliseconds.
    """

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return epoch_ms(value)
        except ValueError:
            self.fail(f"{value!r} is neither ISO-8601 nor an age like 15m, 2h or 7d", param, ctx)


class WhenWritten(When):
    """Like `When`, but converted to a `Moment`, which keeps the text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Moment(value, super().convert(value, param, ctx))


def epoch_ms(text: str) -> int:
    """The time in epoch milliseconds. Raises `ValueError` for a text that is neither ISO-8601 nor
    an age.
    """
    if found := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return int((time.time() - int(found[1]) * UNITS_S[found[2]]) * 1000)
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
