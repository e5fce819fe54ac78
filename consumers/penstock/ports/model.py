"""The model server.

Rule: one answer for each row, in order, or an error that says whose fault it is. Owner: the calls
of a model, which bound them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.rows.payload import Payload


class Answers(NamedTuple):
    """What the model said, one entry per row of the batch, in order.

    `values[i]` is prediction i as JSON text; `errors` has the rows the model rejected by themselves
    (their value is `b"null"`). `nbytes`: the values together have no more, where the adapter knows
    that without counting.
    """

    values: Sequence[bytes]
    errors: Mapping[int, str]
    nbytes: int | None = None


class Model(Protocol):
    """The model server. Any number of tasks; the caller bounds them."""

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        """One request with all rows of `payloads` (equal shape), in order. Without payloads: is the
        model there? How that is asked is the adapter's to know.

        Raises `Rejected`/`Poison` for the rows, `Transient`/`Unreachable` for the server,
        `Fatal` for settings.
        """
        ...

    async def ready(self) -> bool:
        """Does the model answer? Never raises for a server that is away."""
        ...

    @property
    def version(self) -> str | None: ...

    @property
    def most_rows(self) -> int | None:
        """In one request, as far as the server says; None: any number."""
        ...

    async def aclose(self) -> None: ...
