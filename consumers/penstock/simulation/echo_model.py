"""The model of a simulated world: it answers each row by the row's own number.

Rule: a row is two numbers, its own and a flag. The flag tells the model how to treat the row, so
the right answer to a row depends on the row alone. Owner: the simulation.
"""

from typing import Any

import orjson

from penstock.core.rows.payload import BytesRows, JsonRows, Matrix, Payload
from penstock.errors import ErrorCode, HungUp, Poison, Rejected, Transient, WorkerDied
from penstock.ports import Answers

FINE, REFUSED_ALONE, REFUSED_WITH_ALL, KILLS, HANGS, LARGE, HUNG_UP_ON = 0, 1, 2, 3, 4, 5, 6
# More than the output topic takes, in worlds where records must be small.
LARGE_BYTES = 8_000
# After this time the server ends a process that hangs.
HANGS_S = 8.0


class Deadly(Poison):
    """A call with such a row gets no answers: the model's process ends after `after_s`, or the
    server hangs up. `code`: the error by which the row must be answered in the end.
    """

    def __init__(self, code: ErrorCode, loss: Transient, after_s: float = 0.0) -> None:
        super().__init__(code, str(loss))
        self.loss = loss
        self.after_s = after_s


def echo(payload: Payload) -> Answers:
    """The answers of the model to rows in any form."""
    pairs = _pairs(payload)
    flags = {flag for _, flag in pairs}
    if flags & {KILLS, HANGS}:
        died = WorkerDied("Worker died.")
        raise Deadly("model_rejected", died, 0.0 if KILLS in flags else HANGS_S)
    if HUNG_UP_ON in flags:
        raise Deadly("unavailable", HungUp("the server hung up"))
    if REFUSED_WITH_ALL in flags:
        raise Rejected("model_rejected", "a row made the handler raise")
    errors = {index: "no" for index, (_, flag) in enumerate(pairs) if flag == REFUSED_ALONE}
    values = [
        b"null" if index in errors else _answer(number, flag)
        for index, (number, flag) in enumerate(pairs)
    ]
    return Answers(values, errors)


def _answer(number: int, flag: int) -> bytes:
    if flag == LARGE:
        return b'{"n":%d,"pad":"%b"}' % (number, b"x" * LARGE_BYTES)
    return b'{"n":%d}' % number


def _pairs(payload: Payload) -> list[Any]:
    if isinstance(payload, Matrix):
        pairs: list[Any] = payload.values.tolist()
        return pairs
    if isinstance(payload, BytesRows):
        return [_pair_of(bytes(payload.row(index))) for index in range(payload.rows)]
    assert isinstance(payload, JsonRows)
    return [_pair(row) for row in orjson.loads(b"[%b]" % bytes(payload.body))]


def _pair_of(line: bytes) -> Any:
    """The two numbers of a line of text. Any other line gets the flag with which the model refuses
    it.
    """
    number, _, flag = line.partition(b",")
    return (int(number), int(flag)) if number.isdigit() and flag.isdigit() else (0, REFUSED_ALONE)


def _pair(row: object) -> Any:
    """The two numbers of a JSON row. Any other row gets the flag of a row that is refused."""
    if isinstance(row, list) and len(row) == 2 and all(_is_number(cell) for cell in row):
        return row
    return (0, REFUSED_ALONE)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)
