"""Writes the causes of the diagnosis to the log: when one begins, and when it is over.

Rule: what an event of its own tells better (a service that is away, a line that stops, a rejection)
is not written again here. A cause that comes and goes has one line a minute. Owner: the status.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.diagnosis.problem import OF_FLOW

log = logging.getLogger(__name__)

WRITTEN: Final = {*OF_FLOW, "away", "clock", "silent"}
# The least time between two lines about the same cause.
QUIET_S: Final = 60.0


class Cause(NamedTuple):
    kind: str
    stream: str | None
    service: str | None


class _Lasts(NamedTuple):
    since_s: float
    what: str
    is_written: bool


class CauseLog:
    def __init__(self) -> None:
        self._lasting: dict[Cause, _Lasts] = {}
        self._written_s: dict[Cause, float] = {}

    def note(self, document: Mapping[str, Any], now_s: float) -> None:
        """`document`: the status with its problems. Call this every few seconds."""
        problems: Sequence[Mapping[str, Any]] = document["problems"]
        logged = {outage["service"] for outage in document["outages"]}
        found = {
            Cause(one["kind"], one["stream"], one["service"]): one
            for one in problems
            if one["kind"] in WRITTEN and one["service"] not in logged
        }
        self._written_s = {
            cause: at_s for cause, at_s in self._written_s.items() if now_s - at_s < QUIET_S
        }
        for cause in self._lasting.keys() - found.keys():
            before = self._lasting.pop(cause)
            if before.is_written:
                log.info("over after %.0f s: %s", now_s - before.since_s, before.what)
        for cause, one in found.items():
            if cause not in self._lasting:
                is_written = cause not in self._written_s
                self._lasting[cause] = _Lasts(now_s, one["what"], is_written)
                if is_written:
                    self._written_s[cause] = now_s
                    log.warning(
                        "%s", ". ".join(filter(None, (one["what"], one["holds"], one["do"])))
                    )
