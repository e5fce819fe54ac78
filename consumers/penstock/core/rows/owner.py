"""A ticket's record and its lane, as far as the core needs to know them.

Rule: nothing here decides. Owner: the lane, to which the ticket belongs.
"""

from typing import NamedTuple, Protocol, TypeVar

# The ticket's class is in blocks.py, which imports this file; so it stands here as a variable.
Ticket_contra = TypeVar("Ticket_contra", contravariant=True)


class Origin(Protocol):
    """The fields of a ticket's record that the ticket keeps."""

    @property
    def offset(self) -> int: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def timestamp_ms(self) -> int: ...


class Owner(Protocol[Ticket_contra]):
    """The lane of a ticket, as a stage that holds one of the ticket's blocks sees it."""

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
        """The ticket's object was read to its end, or was given up."""
        ...

    def hold(self, nbytes: int) -> None:
        """Rows of this lane now take this much of the byte budget."""
        ...

    def wake(self) -> None:
        """A block was answered or a ticket closed, so there may be a release."""
        ...


class Over(NamedTuple):
    """The owner of a ticket whose stream was stopped. Like a closed lane it drops all work."""

    topic: str
    partition: int
    alive: bool = False

    def may_overdraw(self, ticket: object) -> bool:
        """True, so that the reader gets to the check that stops it."""
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
