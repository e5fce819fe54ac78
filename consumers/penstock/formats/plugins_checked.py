"""Checks the format of a user's package, and each run of rows that its parser gives.

Rule: what can be mended without changing a value (memory order, byte order) is mended; any other
fault is `bad_format`, with what to give instead. A check takes 2 us per run, so our own formats are
checked by their tests alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from penstock.core.rows.payload import BytesRows, Columns, Form, JsonRows, Matrix, Payload
from penstock.errors import Poison, usage
from penstock.formats.format import Format
from penstock.formats.parser_chain import Parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import ObjectSource, Wanted

_FLOAT32: Final = np.dtype("<f4")
FORMS: Final[dict[type, tuple[Form, ...]]] = {
    # A request of typed columns takes a matrix, too. If so, the columns are named by their numbers.
    Matrix: ("matrix", "columns"),
    JsonRows: ("json",),
    BytesRows: ("bytes",),
    Columns: ("columns",),
}


def guarded(format: Format) -> Format:
    """The same format, but with checked runs. Raises `Fatal` if a field of the format is wrong,
    because such a field would make every object fail.
    """
    wrong = _flaw(format)
    if wrong is not None:
        raise usage(
            f"the format {format.name!r} cannot be used: {wrong}; mend or uninstall its package"
        )
    open_parser, ranged = format.open, format.ranged

    def open_guarded(options: RowOptions) -> Parser | None:
        parser = open_parser(options) if open_parser is not None else None
        return None if parser is None else _Guarded(parser, options.form)

    def read_guarded(source: ObjectSource, options: RowOptions, wanted: Wanted) -> Iterator[Run]:
        assert ranged is not None
        return _checked(ranged(source, options, wanted), options.form)

    return replace(
        format,
        open=None if open_parser is None else open_guarded,
        ranged=None if ranged is None else read_guarded,
    )


def _flaw(format: Format) -> str | None:
    """A text that says which field of the format is wrong. None: all fields are right."""
    called = {"makes": True, "looks": True, "is_plain": True, "open": False, "ranged": False}
    for name, is_needed in called.items():
        value = getattr(format, name)
        if not callable(value) and (is_needed or value is not None):
            return f"its {name} is {value!r:.80}, and must be called"
    if format.open is None and format.ranged is None:
        return "it has neither open nor ranged"
    for extension in format.extensions:
        if extension[:1] != "." or extension != extension.lower():
            return f"its extension {extension!r:.80} is not like '.abc', in lower case"
    return None


class _Guarded(Parser):
    """A parser that a package wrote, perhaps without our base class: it needs `feed`, `close`,
    `step_bytes` and `damage`.
    """

    def __init__(self, parser: Parser, form: Form) -> None:
        self._parser = parser
        self._form = form
        self.step_bytes = parser.step_bytes
        self.damage = parser.damage

    def feed(self, data: bytes) -> Iterator[Run]:
        return _checked(self._parser.feed(data), self._form)

    def close(self) -> Iterator[Run]:
        return _checked(self._parser.close(), self._form)


def _checked(runs: Iterable[Run], form: Form) -> Iterator[Run]:
    for run in runs:
        yield checked(run, form)


def checked(run: Run, form: Form) -> Run:
    """The run. A fault is mended if that changes no value; for any other fault, `Poison` is
    raised.
    """
    if not isinstance(run, Run):
        raise _wrong(f"{type(run).__name__}, no Run")
    payload = run.payload
    if run.rows < (payload is not None) or not isinstance(run.error, str | None):
        raise _wrong(f"a Run of {run.rows} rows with the error {run.error!r:.80}")
    if payload is None:
        return run
    if form not in FORMS.get(type(payload), ()):
        raise _wrong(f"{type(payload).__name__} for a request that takes {form}")
    sound = _matrix(payload) if isinstance(payload, Matrix) else payload
    if sound.rows != run.rows:
        raise _wrong(f"{sound.rows} rows in a Run of {run.rows}")
    if isinstance(sound, JsonRows | BytesRows) and sound.ends[-1] != len(sound.body):
        raise _wrong(f"rows that end at {sound.ends[-1]} in {len(sound.body)} bytes")
    return run if sound is payload else run._replace(payload=sound)


def _matrix(payload: Matrix) -> Payload:
    values: Any = payload.values
    if not isinstance(values, np.ndarray) or values.ndim != 2 or not values.shape[1]:
        shape = list(np.shape(values))
        raise _wrong(f"a matrix of the shape {shape}; give [rows, numbers of a row]")
    if values.dtype == _FLOAT32 and values.flags.c_contiguous:
        return payload
    if values.dtype.newbyteorder("<") != _FLOAT32:
        raise _wrong(f'a matrix of {values.dtype}; give float32, by astype("<f4")')
    return Matrix(np.ascontiguousarray(values, _FLOAT32))


def _wrong(what: str) -> Poison:
    return Poison("bad_format", f"the format's parser gave {what}; mend its package")
