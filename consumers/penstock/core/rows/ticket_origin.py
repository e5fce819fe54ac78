"""Where a ticket comes from: the object that it answers, and how far the object is read; the record
that names the object; the lane that owes the answer; and the caller's trace.

Rule: rows that a former assignment delivered are skipped only if the same version is read by the
same rules. The core sees record and lane only by the protocols `Origin` and `Owner`, so it does not
depend on the lane. Owner: the ticket; the fetcher that has the ticket changes it.
"""

from typing import Literal, NamedTuple, Protocol, TypeVar

from penstock.core.progress import cursor
from penstock.core.progress.cursor import START
from penstock.core.routing.store_choice import DEFAULT
from penstock.messages.reference import Inline, Reference

# Stands for the class `Ticket` of blocks.py, which cannot be imported here, because blocks.py
# imports this file.
Ticket_contra = TypeVar("Ticket_contra", contravariant=True)


class Origin(Protocol):
    """The fields of a ticket's record that the ticket keeps."""

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def timestamp_ms(self) -> int: ...


class Owner(Protocol[Ticket_contra]):
    """The part of a lane that the stages see when they work on the lane's tickets."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def topic_id(self) -> str | None:
        """The id of the topic; None: the broker does not tell it."""
        ...

    @property
    def alive(self) -> bool:
        """True while the lane's assignment lasts. Once it is over, all work for the lane is
        dropped.
        """
        ...

    def may_overdraw(self, ticket: Ticket_contra) -> bool:
        """Must this ticket's object be read on although the byte budget is spent?"""
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
    """The owner of a ticket whose stream was stopped. All work for the ticket is dropped, as if its
    lane were closed.
    """

    topic: str
    partition: int
    topic_id: str | None = None
    alive: bool = False

    def may_overdraw(self, ticket: object) -> bool:
        """True, so that the reader does not wait for room, but comes to its check of `alive`."""
        return True

    def fetched(self, ticket: object) -> None:
        return

    def hold(self, nbytes: int) -> None:
        return

    def wake(self) -> None:
        return


class FirstAnswer(NamedTuple):
    """Which record of this partition has the first answer to an object. `row`: the row that the
    record answers; None: the object has no rows, and the record is its marker.
    """

    offset: int
    object_index: int
    row: int | None


class SourceObject:
    """One object of one record. If it has neither a reference nor inline rows, its record names no
    object.
    """

    __slots__ = (
        "inline",
        "next_row",
        "object_index",
        "pin",
        "published_rows",
        "read_bytes",
        "record",
        "reference",
        "resume",
        "row_rules",
        "started",
        "store",
        "stream",
    )

    def __init__(
        self,
        record: Origin,
        object_index: int,
        stream: str,
        reference: Reference | None,
        inline: Inline | None,
        store: str,
    ) -> None:
        self.record = record
        self.object_index = object_index  # the object's number in the message
        self.stream = stream
        self.reference = reference  # None for inline rows
        self.inline = inline
        self.store = store  # the name of the store that has the object

        self.started = False  # a fetcher has taken the ticket
        self.pin: tuple[str | None, str | None] | None = None  # the version id and tag read
        self.row_rules = ""  # the settings by which bytes become rows
        self.next_row = 0  # the first row that is not read yet
        self.read_bytes = 0  # by all tries together; the watchdog sees from it that reading goes on
        self.resume = START  # up to which row a former assignment delivered the object
        # Rows that are on the output topic already, but are answered again for the result object.
        self.published_rows = 0

    @property
    def version(self) -> str | None:
        """The version that is read: its id, else its entity tag; None before the first read."""
        version_id, etag = self.pin or (None, None)
        return version_id or etag

    @property
    def digest(self) -> str:
        """The digest of the object's name, its version and the rules by which its bytes become
        rows. A cursor with another digest is not valid for this object.
        """
        if self.reference is None:
            return cursor.digest("inline", str(self.record.offset), self.row_rules)
        name = f"{self.reference.bucket}/{self.reference.key}"
        if self.store != DEFAULT:
            name = f"{self.store}:{name}"
        return cursor.digest(name, self.version, self.row_rules)

    def resumes(self, *, from_first_row: bool) -> bool:
        """Skip the rows that a former assignment delivered. Returns True if reading may go on
        behind these rows, and False if the former assignment read another version. With
        `from_first_row` (for a result object) all rows are answered again, but the delivered rows
        get no second record.
        """
        if self.next_row or not self.resume.row:
            return True
        if self.resume.version != self.digest:
            self.published_rows = 0
            return False
        if from_first_row:
            self.published_rows = self.resume.row
        else:
            self.next_row = self.resume.row
        return True


# Why the spans of an object are sent to the collector.
Why = Literal["caller", "ratio", "error", "slow"]


class Trace:
    """The trace of one object. It is made when the object's record is decoded, if traces are
    configured; its spans are made when the object is delivered. `why`: why the spans are to be
    sent; None: they are not to be sent so far. `parent_id`: the caller's span; 0: no caller sent
    one. `given`: the caller's own `traceparent`. `batch`: trace and span of the last request to the
    model that carried rows of the object.
    """

    __slots__ = ("batch", "code", "given", "message", "parent_id", "span_id", "trace_id", "why")

    def __init__(
        self, trace_id: int, parent_id: int, span_id: int, why: Why | None, given: bytes | None
    ) -> None:
        self.given = given
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = span_id
        self.why = why
        self.batch: tuple[int, int] | None = None
        # The object's first error.
        self.code: str | None = None
        self.message = ""

    @property
    def hex_id(self) -> str:
        """The trace id, as people and other tools write it."""
        return f"{self.trace_id:032x}"

    def failed(self, code: str, message: str) -> None:
        if self.code is None:
            self.code, self.message = code, message
