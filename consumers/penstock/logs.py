"""Writes log lines: as text on a terminal, as JSON everywhere else.

Rule: texts of libraries and servers may have secrets, so every printed error goes through
`redacted`. A message of a client library is logged once a minute, however often it comes.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote

import orjson

from penstock.terminal_text import escaped

MASK = "********"
# A secret that is shorter than this stays visible. If it were hidden, ordinary words that contain
# it would be hidden, too; and such a short secret protects nothing.
LEAST_SECRET_CHARS = 6
# The local stack uses this word as a key, but it is not hidden. Otherwise every command that a
# message advises would be unreadable.
PROGRAM = "penstock"

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


# A text of a library is logged once in this time. Without this, aiokafka would write 80 lines a
# second while Kafka is unreachable, from six places in its code.
REPEAT_S = 60.0
# If a library tries again after an error, the error is logged only if it still comes after this
# time.
LASTING_S = 10.0
# At most this many texts are remembered. There must be a limit, because a library may put values
# into its texts, so that each text is different.
MAX_TEXTS = 1_000


class Seldom(logging.Filter):
    """Lets a library's message pass once in `REPEAT_S`, whatever values it contains. Our own
    messages always pass. A library tries again by itself after some errors, and some of these come
    at every healthy start. So such an error passes only if it has come again and again for
    `LASTING_S`, and then as a warning.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[tuple[str, object], float] = {}
        # For each text of an error that is held back: the times at which it came first and last.
        self._held_s: dict[tuple[str, object], tuple[float, float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "penstock":
            return True
        text = (record.name, record.msg)
        if _passes_over(record):
            if not self._lasts(text, record.created):
                return False
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.created - self._passed_s.get(text, -REPEAT_S) < REPEAT_S:
            return False
        if len(self._passed_s) >= MAX_TEXTS:
            self._passed_s.clear()
        self._passed_s[text] = record.created
        return True

    def _lasts(self, text: tuple[str, object], now_s: float) -> bool:
        first_s, last_s = self._held_s.get(text, (now_s, now_s))
        if now_s - last_s > LASTING_S:
            first_s = now_s
        if len(self._held_s) >= MAX_TEXTS:
            self._held_s.clear()
        self._held_s[text] = first_s, now_s
        return now_s - first_s >= LASTING_S


def _passes_over(record: logging.LogRecord) -> bool:
    """True for an error after which aiokafka tries again. aiokafka marks such errors as
    retriable.
    """
    args = record.args if isinstance(record.args, tuple) else ()
    return any(isinstance(arg, Exception) and getattr(arg, "retriable", False) for arg in args)


_hidden: list[re.Pattern[str]] = []  # one pattern for all secrets; empty if there are none


def hide(secrets: Iterable[str]) -> None:
    """From now on `redacted` replaces these secrets, both as they are and as they look in JSON and
    in URLs.
    """
    forms = {
        form
        for secret in secrets
        if len(secret) >= LEAST_SECRET_CHARS and secret != PROGRAM
        for form in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],  # as `JsonFormatter` writes it
            repr(secret)[1:-1],
            quote(secret, safe=""),
        )
    }
    longest_first = sorted(forms, key=len, reverse=True)
    _hidden[:] = [re.compile("|".join(map(re.escape, longest_first)))] if forms else []


def redacted(text: str) -> str:
    for secrets in _hidden:
        text = secrets.sub(MASK, text)
    return text


class TextFormatter(logging.Formatter):
    """Makes a line for people on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(redacted(super().format(record)))


class JsonFormatter(logging.Formatter):
    """Makes a line with one JSON object. The fields in `extra` become keys."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return redacted(orjson.dumps(line, default=str).decode())


def set_up(level: str, layout: Literal["auto", "text", "json"]) -> None:
    """Begin to log to standard error. Of client libraries, only warnings and errors are logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Seldom())
    if layout == "text" or (layout == "auto" and sys.stderr.isatty()):
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(level.upper())
