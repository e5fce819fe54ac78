"""The model server.

Rule: one answer for each row, in order, or an error that says whether the rows, the server or the
settings are at fault. Owner: the calls of one model, which bound the requests.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.rows.payload import Payload


class Answers(NamedTuple):
    """What the model said, with one entry for each row of the batch, in order.

    `values[i]` is prediction i as JSON text. `errors`: the rows that the model rejected one by one;
    their value is `b"null"`. `nbytes`: an upper bound of the size of all values, if the adapter
    knows it without counting.
    """

    values: Sequence[bytes]
    errors: Mapping[int, str]
    nbytes: int | None = None


class Model(Protocol):
    """The model server. Any number of tasks may use it; the caller bounds them."""

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        """Send one request with all rows of `payloads`, which have equal shapes, in order. Without
        payloads it asks whether the model is there, in a way that the adapter knows.

        Raises `Rejected` or `Poison` for the rows, `Transient` or `Unreachable` for the server,
        `Fatal` for settings.
        """
        ...

    async def ready(self) -> bool:
        """Does the model answer? Raises nothing for a server that is away."""
        ...

    @property
    def version(self) -> str | None: ...

    @property
    def most_rows(self) -> int | None:
        """The most rows of one request, if the server tells; None: any number."""
        ...

    async def aclose(self) -> None: ...
