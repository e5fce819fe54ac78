"""Formats of a user's package that do to their worker what the object says.

Rule: an object is a word: the call that fails, or the kind of rows that no window can take. Those
of the extensions `.shut` and `.heavy` cannot even be opened.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.core.rows.payload import Matrix
from penstock.errors import ErrorCode
from penstock.formats.format import Format, makes
from penstock.formats.parser_chain import PLAIN_STEP_BYTES, Parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import ObjectSource, Wanted

ROWS = np.arange(4, dtype=np.float32).reshape(2, 2)
_ODD: dict[bytes, Any] = {b"flat": ROWS.reshape(-1), b"none": None, b"list": ROWS.tolist()}


class Trap(Exception):
    """Of no family of ours."""


class _Parser(Parser):
    step_bytes = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self) -> None:
        self._word = b""

    def feed(self, data: bytes) -> Iterator[Run]:
        self._word = data
        yield Run(2, Matrix(ROWS), None)
        if data == b"feed":
            raise Trap("feed")
        if data in _ODD:
            yield Run(4, Matrix(_ODD[data]), None)

    def close(self) -> Iterator[Run]:
        if self._word == b"close":
            raise Trap("close")
        if self._word == b"memory":
            raise MemoryError("8,192,000,000 bytes")
        yield from ()


def _shut(_options: RowOptions) -> _Parser:
    raise Trap("open")


def _heavy(_options: RowOptions) -> _Parser:
    raise MemoryError("8,192,000,000 bytes")


def _ranged(_source: ObjectSource, _options: RowOptions, _wanted: Wanted) -> Iterator[Run]:
    yield Run(2, Matrix(ROWS), None)
    raise Trap("ranged")


TRAP = Format("trap", makes("matrix"), lambda _: _Parser(), extensions=(".trap",))
SHUT = Format("shut", makes("matrix"), _shut, extensions=(".shut",))
# The worker itself opens it.
HEAVY = Format("heavy", makes("matrix"), _heavy, extensions=(".heavy",), is_plain=lambda _: True)
RANGED = Format("ranged", makes("matrix"), ranged=_ranged, extensions=(".ranged",))

ENTRY_POINTS = f"""[penstock.formats]
trap = {__name__}:TRAP
shut = {__name__}:SHUT
heavy = {__name__}:HEAVY
ranged = {__name__}:RANGED
"""
