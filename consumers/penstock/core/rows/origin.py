"""Where a ticket comes from: a record, and the partition that has it. Where rows come from: an
object, and what the sender told of it. Up to where a former assignment delivered them: a cursor.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from penstock.messages.reference import Inline, Reference

VERSION_DIGITS = 16


class Where(NamedTuple):
    """A partition of an input topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Record(NamedTuple):
    """A Kafka message of an input topic. `timestamp_ms`: epoch milliseconds, set by the broker or
    the producer. `traceparent`: the header of this name, unchecked. `headers`: all headers, but
    only if the source does not decode headers into the value.
    """

    where: Where
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    traceparent: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class About(NamedTuple):
    """What is known of the object of some rows. `member`: the part of an archive that has the
    rows.
    """

    stream: str
    member: str | None
    reference: Reference | Inline | None


class Cursor(NamedTuple):
    """The rows before `row` of one object are delivered. `version`: the digest of the object's
    name, its version, and the rules by which its bytes become rows.
    """

    row: int
    version: str


START = Cursor(0, "")


def digest(name: str, version: str | None, row_rules: str = "") -> str:
    """The digest that binds a cursor to one version of one object, and to the rules by which its
    bytes become rows: under other rules row 200 is a different row. Empty if the object has no
    version.
    """
    if version is None:
        return ""
    bound = f"{name}\0{version}\0{row_rules}"
    return hashlib.sha256(bound.encode()).hexdigest()[:VERSION_DIGITS]
