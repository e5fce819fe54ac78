"""What a ticket knows of its record and of its lane.

Rule: the core sees only these protocols, so it does not depend on the lane. Owner: the lane to
which the ticket belongs.
"""

from typing import NamedTuple, Protocol, TypeVar

# Stands for the class `Ticket` of blocks.py, which imports this file and so cannot be imported
# here.
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
    """What the stages see of the lane whose tickets they work on."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def alive(self) -> bool:
        """True while the lane's assignment lasts. Once this is False, all work for the lane is
        dropped.
        """
        ...

    def may_overdraw(self, ticket: Ticket_contra) -> bool:
        """Must the reading of this ticket's object go on although the byte budget is spent?"""
        ...

    def fetched(self, ticket: Ticket_contra) -> None:
        """The ticket's object was read to its end or given up, so its fetcher is free."""
        ...

    def hold(self, nbytes: int) -> None:
        """Charge this many more bytes to the lane's part of the byte budget."""
        ...

    def wake(self) -> None:
        """A block was answered or a ticket was closed, so answers may be able to leave now."""
        ...


class StoppedOwner(NamedTuple):
    """The owner of a ticket whose stream was stopped. All work for the ticket is dropped, as by a
    closed lane.
    """

    topic: str
    partition: int
    alive: bool = False

    def may_overdraw(self, ticket: object) -> bool:
        """True, so that the reader comes to its check of `alive` instead of waiting."""
        return True

    def fetched(self, ticket: object) -> None:
        return

    def hold(self, nbytes: int) -> None:
        return

    def wake(self) -> None:
        return


class FirstAnswer(NamedTuple):
    """Where the first answer to an object stands in this partition. `row` None: the object has no
    rows, but a marker.
    """

    offset: int
    object_index: int
    row: int | None
