"""The keys of a log line: a key has one name in all lines, and is left out without a known value. A
person finds all that matters in the text.
"""

from collections.abc import Mapping
from typing import Any

from penstock.core.rows.blocks import Ticket
from penstock.core.rows.origin import Where

Keys = Mapping[str, Any]


def of_place(where: Where, offset: int | None = None) -> Keys:
    known: dict[str, Any] = where._asdict()
    return known if offset is None else known | {"offset": offset}


def of_ticket(ticket: Ticket) -> Keys:
    owner, reference = ticket.owner, ticket.reference
    known: dict[str, Any] = {
        "stream": ticket.stream,
        **of_place(owner.where, ticket.record.offset),
        "object_index": ticket.object_index,
    }
    if reference is not None:
        known["object"] = f"{reference.bucket}/{reference.key}"
    if ticket.trace is not None:
        known["trace_id"] = ticket.trace.hex_id
    return known
