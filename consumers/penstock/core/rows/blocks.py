"""Tickets, and the blocks of rows that travel between the stages.

    its rows    |0 delivered |512 with the broker |1024 answered |1536 with the model |2000
    the ticket                ^ cursor             ^ head         ^ head.next          ^ next_row

Rule: a ticket is the duty to answer one object of one record. Its blocks form a chain in row order,
so that a block can be cut in two without moving the others. Rows that a former assignment delivered
are skipped only if the same version is read by the same rules. Stages change a ticket only from the
event loop. The core sees the lane only by the protocol `Owner`, so it does not depend on the lane.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.origin import START, Record, Where, digest
from penstock.core.rows.payload import ANSWER_BYTES, BLOCK_COST_BYTES, Kept, Payload, Shape
from penstock.core.rows.rejections import Reasons, Rejection
from penstock.messages.prediction import RecordFrame
from penstock.messages.reference import Inline, Reference


class Owner(Protocol):
    """The part of a lane that the stages see when they work on the lane's tickets."""

    @property
    def where(self) -> Where: ...

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

    def may_overdraw(self, ticket: "Ticket") -> bool:
        """Must this ticket's object be read on although the byte budget is spent?"""
        ...

    def fetched(self, ticket: "Ticket") -> None:
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

    where: Where
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


class ModelRequest(NamedTuple):
    """The request to the model by which rows were answered. `rows` and `objects`: how many of them
    the request carried; `request`: its number among the requests of its batch. A batch takes more
    than one request if one fails, or if the model refuses rows and the batch is cut.
    """

    rows: int
    objects: int
    request: int


class Block:
    """Consecutive rows of one object. A block without `answers` waits, unless it has a `rejection`,
    which is the error of all its rows. `cost_bytes`: how many bytes of the byte budget the block
    takes. `answer_bytes`: an upper bound of the size of the answers.
    """

    __slots__ = (
        "answer_bytes",
        "answered_s",
        "answers",
        "arrived_s",
        "asked",
        "called_s",
        "cost_bytes",
        "errors",
        "first_row",
        "is_backlog",
        "kept",
        "member",
        "next",
        "payload",
        "reasons",
        "rejection",
        "rows",
        "ticket",
        "waiting",
    )

    def __init__(
        self,
        ticket: "Ticket",
        first_row: int,
        rows: int,
        payload: Payload | None,
        member: str | None = None,
        rejection: Rejection | None = None,
        reasons: Reasons | None = None,
    ) -> None:
        """`rejection`: the error of all rows. `reasons`: a text for the error of each row, given
        only if the texts differ.
        """
        self.ticket = ticket
        self.first_row = first_row
        self.rows = rows
        self.payload = payload
        self.member = member
        self.rejection = rejection
        self.reasons = reasons
        self.answers: Sequence[bytes] | None = None
        self.answer_bytes = 0
        self.errors: Mapping[int, Rejection] = {}
        self.arrived_s = 0.0
        self.called_s = 0.0
        self.answered_s = 0.0
        self.asked: ModelRequest | None = None
        self.cost_bytes = 0
        self.waiting = False
        self.is_backlog = False
        self.kept: Kept | None = None
        self.next: Block | None = None

    @property
    def is_answered(self) -> bool:
        return self.answers is not None or self.rejection is not None

    @property
    def shape(self) -> Shape:
        """The shape of the payload. The block has a payload until its rows are answered."""
        assert self.payload is not None
        return self.payload.shape

    def charge(self, nbytes: int) -> None:
        """Charge `nbytes` bytes more to the byte budget."""
        self.cost_bytes += nbytes
        self.ticket.owner.hold(nbytes)

    def split(self, rows: int) -> "Block":
        """Keep the first `rows` rows. Returns the other rows as a block, which comes next in the
        chain.
        """
        assert 0 < rows < self.rows
        rest = Block(
            self.ticket,
            self.first_row + rows,
            self.rows - rows,
            None,
            self.member,
            self.rejection,
        )
        rest.arrived_s = self.arrived_s
        rest.called_s, rest.answered_s = self.called_s, self.answered_s
        rest.asked = self.asked
        rest.waiting, rest.is_backlog = self.waiting, self.is_backlog
        # The charge is divided by rows. There is one more block now, and each block has a cost of
        # its own.
        rest.cost_bytes = self.cost_bytes * rest.rows // self.rows
        self.cost_bytes -= rest.cost_bytes
        rest.charge(BLOCK_COST_BYTES)
        rest.next, self.next = self.next, rest
        if self.ticket.tail is self:
            self.ticket.tail = rest
        self._split_rows(rest, rows)
        self.rows = rows
        return rest

    def _split_rows(self, rest: "Block", rows: int) -> None:
        if self.payload is not None:
            rest.payload = self.payload.cut(rows, self.rows)
            self.payload = self.payload.cut(0, rows)
        if self.kept is not None:
            rest.kept = self.kept.cut(rows, self.rows)
            self.kept = self.kept.cut(0, rows)
        if self.reasons is not None:
            rest.reasons = self.reasons.cut(rows, self.rows)
            self.reasons = self.reasons.cut(0, rows)
        if self.answers is not None:
            rest.answers, self.answers = self.answers[rows:], self.answers[:rows]
            rest.answer_bytes = sum(map(len, rest.answers))
            self.answer_bytes = sum(map(len, self.answers))
            errors = self.errors
            rest.errors = {row - rows: why for row, why in errors.items() if row >= rows}
            self.errors = {row: why for row, why in errors.items() if row < rows}

    def answer(
        self, answers: Sequence[bytes], errors: Mapping[int, Rejection], most_bytes: int
    ) -> None:
        """Take one answer for each row, and drop the payload. All answers together have at most
        `most_bytes`. The keys of `errors` are indexes of rows in this block.
        """
        room_bytes = self.rows * ANSWER_BYTES
        if most_bytes > room_bytes:
            most_bytes = sum(map(len, answers))
        more_bytes = max(0, most_bytes - room_bytes)
        if errors or more_bytes:
            self.charge(more_bytes + sum(why.cost_bytes for why in errors.values()))
        self.answers = answers
        self.answer_bytes = most_bytes
        self.errors = errors
        self.payload = None

    def retract(self, rejection: Rejection) -> None:
        """The block has only one row. Replace its answer and its kept values by an error."""
        self.answers, self.errors, self.kept, self.answer_bytes = None, {}, None, 0
        self.reasons = None
        self.reject(rejection)

    def reject(self, rejection: Rejection) -> None:
        self.charge(rejection.cost_bytes)
        self.rejection = rejection
        self.payload = None

    def rejections(self) -> Iterator[tuple[int, Rejection]]:
        """The errors of a rejected block in row order, each with the number of its rows."""
        assert self.rejection is not None
        if self.reasons is None:
            yield self.rows, self.rejection
            return
        for rows, text in self.reasons:
            yield rows, self.rejection._replace(message=text)


def backlog_of(store: str) -> str:
    """The name of the fetchers for a store's backlog."""
    return f"{store}\0backlog"


class Ticket:
    """The duty to answer one object of one record: its chain of blocks, and how the reading of the
    object ended. If it has neither a reference nor inline rows, its record names no object.
    """

    __slots__ = (
        "__weakref__",
        "closed",
        "cost_bytes",
        "duplicate_of",
        "failure",
        "fetched_s",
        "fetching_s",
        "frame",
        "gives_way",
        "has_errors",
        "head",
        "index",
        "inline",
        "model",
        "next_row",
        "object_index",
        "owner",
        "pin",
        "published_rows",
        "queue",
        "read_bytes",
        "received_s",
        "record",
        "reference",
        "resume",
        "row_rules",
        "rows",
        "started",
        "store",
        "stream",
        "tail",
        "trace",
        "value_kept",
    )

    def __init__(
        self,
        owner: Owner,
        record: Record,
        index: int,
        stream: str,
        reference: Reference | None,
        inline: Inline | None = None,
        store: str = DEFAULT,
    ) -> None:
        self.record = record
        self.object_index = index  # the object's number in the message
        self.stream = stream
        self.reference = reference  # None for inline rows
        self.inline = inline
        self.store = store  # the name of the store that has the object
        self.gives_way = False  # it is backlog, beside which live objects go first
        # The lane; once the ticket's stream was stopped, a stand-in that drops all work.
        self.owner = owner
        # The number by which the ledger knows the ticket. The tickets of several models for one
        # object have the same `object_index`, and each has an `index` of its own.
        self.index = index
        self.queue = stream  # in which order is kept: a stream, or a stream and a model
        self.model: str | None = None  # the model that answers; None: the default model

        # When the ticket reached each stage, in seconds of the pipeline's clock; 0: not yet.
        self.received_s = self.fetching_s = self.fetched_s = 0.0
        self.trace: Trace | None = None  # None: traces are not configured

        # The chain of blocks that have not left, and the ticket's share of the message's memory.
        self.head: Block | None = None
        self.tail: Block | None = None
        self.cost_bytes = 0

        # How far the object is read.
        self.started = False  # a fetcher has taken the ticket
        self.pin: tuple[str | None, str | None] | None = None  # the version id and tag read
        self.row_rules = ""  # the settings by which bytes become rows
        self.next_row = 0  # the first row that is not read yet
        self.read_bytes = 0  # by all tries together; the watchdog sees from it that reading goes on
        self.resume = START  # up to which row a former assignment delivered the object
        # Rows that are on the output topic already, but are answered again for the result object.
        self.published_rows = 0

        # How the reading of the object ended.
        self.closed = False  # no more blocks will come
        self.rows = 0  # how many the whole object has, known once the ticket is closed
        self.failure: Rejection | None = None  # why the object could not be read to its end
        self.duplicate_of: FirstAnswer | None = None  # the earlier answer that counts

        # What the ticket's records and dead letters need.
        self.frame: RecordFrame | None = None  # the constant part of all records
        self.has_errors = False  # a row was answered by an error
        self.value_kept = False  # a dead letter already has the message's bytes

    @property
    def name(self) -> str:
        """Topic, partition, offset and object index. With a row's number behind it, this is the id
        of the row's record.
        """
        topic, partition = self.owner.where
        return f"{topic}/{partition}/{self.record.offset}/{self.object_index}"

    @property
    def fetchers(self) -> str:
        """Who reads the object: the fetchers of its store, or those for the store's backlog."""
        return backlog_of(self.store) if self.gives_way else self.store

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
            return digest("inline", str(self.record.offset), self.row_rules)
        name = f"{self.reference.bucket}/{self.reference.key}"
        if self.store != DEFAULT:
            name = f"{self.store}:{name}"
        return digest(name, self.version, self.row_rules)

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

    def add(self, block: Block) -> None:
        """Append to the chain. Blocks come in row order."""
        if self.tail is None:
            self.head = self.tail = block
        else:
            self.tail.next = self.tail = block

    @property
    def has_answers(self) -> bool:
        """Could a block of this ticket leave if all tickets before it had left?"""
        head = self.head
        return self.closed if head is None else head.is_answered

    def blocks(self) -> Iterator[Block]:
        """The blocks that have not left."""
        block = self.head
        while block is not None:
            yield block
            block = block.next

    def forget(self) -> None:
        """Let go of the chain. Blocks and ticket refer to each other, so without this call they
        would stay in memory until the next garbage collection.
        """
        self.head = self.tail = None

    def close(self, failure: Rejection | None = None) -> None:
        """End the object. Suppose it failed before it was opened, or while it was read again from
        its first row. Then the rows that a former assignment delivered count as answered, because
        nothing shows that they were of another version.
        """
        if failure is not None and self.pin is None:
            self.next_row = max(self.next_row, self.resume.row)
        self.rows = max(self.next_row, self.published_rows)
        self.failure = failure
        self.closed = True


def leading(blocks: list[Block], rows: int | None) -> tuple[list[Block], list[Block]]:
    """Returns two lists: the first `rows` rows (None: all), and the rows behind them. A block that
    lies across the border is cut.
    """
    if rows is None:
        return blocks, []
    for index, block in enumerate(blocks):
        if block.rows > rows:
            if not rows:
                return blocks[:index], blocks[index:]
            rest = block.split(rows)
            return blocks[: index + 1], [rest, *blocks[index + 1 :]]
        rows -= block.rows
    return blocks, []
