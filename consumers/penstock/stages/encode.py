"""Encodes a release into records; one that cannot be encoded is cut until the fault is alone.

Rule: an unforeseen exception at encoding costs only the row whose record cannot be made. That row
is tried once more alone, then answered by `unavailable`. A letter that cannot be made in full is
shortened, not left out. Owner: the publish stage.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.calls.unexpected_errors import Guard
from penstock.core.order.releases import Release
from penstock.core.records.output_records import Encoded, Records, ends_alone
from penstock.core.rows.blocks import Block, Rejection
from penstock.errors import Unforeseen


class Leaving(NamedTuple):
    """A release, or a part of one, and its records."""

    release: Release
    encoded: Encoded


def encoded(records: Records, guard: Guard, release: Release) -> Iterator[Leaving]:
    """The release as a whole if it can be encoded, else its parts, in order."""
    try:
        with guard:
            made = records.encode(release)
    except Unforeseen as error:
        parts = _cut(release)
        if parts is None:
            yield Leaving(release, _alone(records, guard, release, error))
            return
    else:
        yield Leaving(release, made)
        return
    for part in parts:
        yield from encoded(records, guard, part)


def _alone(records: Records, guard: Guard, release: Release, error: Unforeseen) -> Encoded:
    """The record of one row, or of the end of an object: tried once more, then an error in its
    place. If that cannot be encoded either, the process ends.
    """
    try:
        with guard:
            return records.encode(release)
    except Unforeseen:
        why = Rejection(error.code, str(error), "publish", 2)
        if release.blocks:
            release.blocks[0].retract(why)
        else:
            release.ticket.failure = why
        return records.encode(release)


def _cut(release: Release) -> tuple[Release, Release] | None:
    """Two parts with half of the rows each, or a row and the end of its object. None: the release
    cannot be cut further.
    """
    rows = release.rows
    if rows > 1:
        first, rest = _at(release.blocks, rows // 2)
    elif rows and ends_alone(release):
        first, rest = release.blocks, []
    else:
        return None
    ticket = release.ticket
    return Release(ticket, first, finished=False), Release(ticket, rest, release.finished)


def _at(blocks: list[Block], rows: int) -> tuple[list[Block], list[Block]]:
    """The first `rows` rows, and the others; a block that lies across the border is cut."""
    for number, block in enumerate(blocks):
        if rows < block.rows:
            rest = [block.split(rows)] if rows else [block]
            return blocks[: number + bool(rows)], rest + blocks[number + 1 :]
        rows -= block.rows
    return blocks, []
