"""Log lines: text for people on a terminal, JSON for machines everywhere else.

Rule: secrets are kept out of messages where these are made; `redacted` is the net below, for what
libraries and servers say. Everything that is printed about an error goes through it. What client
libraries say is said once a minute, however often they say it.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote

import orjson

MASK = "********"
# A shorter one would blot out ordinary words, and protects nothing.
LEAST_SECRET_CHARS = 6
# A key of this name (that of the local stack) would blot out every command that a message advises.
PROGRAM = "penstock"

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


# aiokafka writes 80 lines a second while Kafka is away, from six places.
REPEAT_S = 60.0
# Texts that libraries put together themselves may differ each time.
MAX_TEXTS = 1_000


class Seldom(logging.Filter):
    """Lets a library's message pass if it was not seen, with whatever values, for `REPEAT_S`. Our
    own always pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "penstock":
            return True
        text = (record.name, record.msg)
        if record.created - self._passed_s.get(text, -REPEAT_S) < REPEAT_S:
            return False
        if len(self._passed_s) >= MAX_TEXTS:
            self._passed_s.clear()
        self._passed_s[text] = record.created
        return True


_hidden: list[re.Pattern[str]] = []  # one for all secrets, or none


def hide(secrets: Iterable[str]) -> None:
    """From now on `redacted` replaces these, as they are and as JSON and addresses write them."""
    forms = {
        form
        for secret in secrets
        if len(secret) >= LEAST_SECRET_CHARS and secret != PROGRAM
        for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe=""))
    }
    longest_first = sorted(forms, key=len, reverse=True)
    _hidden[:] = [re.compile("|".join(map(re.escape, longest_first)))] if forms else []


def redacted(text: str) -> str:
    for secrets in _hidden:
        text = secrets.sub(MASK, text)
    return text


class TextFormatter(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra` fields become keys."""

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
    """To standard error. The client libraries speak only from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Seldom())
    if layout == "text" or (layout == "auto" and sys.stderr.isatty()):
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("penstock").setLevel(level.upper())
