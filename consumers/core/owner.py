"""What a ticket belongs to and comes from, as far as the core needs to know it.

Rule: nothing here decides. Owner: the lane, which is what a ticket belongs to.
"""

from typing import NamedTuple, Protocol, TypeVar

# The ticket itself, which is in blocks.py: that imports this file, not the other way round.
Ticket_contra = TypeVar("Ticket_contra", contravariant=True)


class Origin(Protocol):
    """The record a ticket came with, as far as it goes on with it."""

    @property
    def offset(self) -> int: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def timestamp_ms(self) -> int: ...


class Owner(Protocol[Ticket_contra]):
    """The lane of a ticket, as far as a stage that holds one of its blocks needs to know it."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def alive(self) -> bool:
        """False once the generation is over: work for it is dropped."""
        ...

    def may_overdraw(self, ticket: Ticket_contra) -> bool:
        """Must this ticket's object go on although the byte budget is spent?"""
        ...

    def fetched(self, ticket: Ticket_contra) -> None:
        """The ticket's object was read to its end, or will not be."""
        ...

    def hold(self, nbytes: int) -> None:
        """Rows of this lane now take this much of the byte budget."""
        ...

    def wake(self) -> None:
        """Something was answered or closed: there may be something to release."""
        ...


class Over(NamedTuple):
    """The owner of a ticket whose stream stands still: as that of a generation that is over."""

    topic: str
    partition: int
    alive: bool = False

    def may_overdraw(self, ticket: object) -> bool:
        """Who reads it goes on to find out."""
        return True

    def fetched(self, ticket: object) -> None:
        return

    def hold(self, nbytes: int) -> None:
        return

    def wake(self) -> None:
        return


class Answered(NamedTuple):
    """The first answer to an object of this partition; `row` None: it has no rows but a marker."""

    offset: int
    object_index: int
    row: int | None


class Times:
    """When a ticket's object passed where; seconds of the pipeline's clock."""

    __slots__ = ("fetched_s", "fetching_s", "received_s")

    def __init__(self) -> None:
        self.received_s = 0.0
        self.fetching_s = 0.0
        self.fetched_s = 0.0
