"""Answers as Arrow blocks: a Kafka record for so many rows of an object, without JSON of each.

Rule: a block holds the same as the rows' records, in their order, and is no larger than the topic
takes. A single row that is too large is replaced by an error, and an error that is still too large
is shortened. Owner: the publish stage.
"""

from typing import Any

from penstock.core.order.releases import Release
from penstock.core.records.failed_rows import (
    Failed,
    failed_rows,
    published_rows,
    too_large,
    unpublished,
)
from penstock.core.records.output_records import Encoded, Fits, Labels, Records, ends_alone
from penstock.core.rows.blocks import Ticket
from penstock.core.rows.rejections import Rejection
from penstock.encodings.arrow_blocks import FRAME_BYTES, alone, block, needed
from penstock.encodings.base import Rows
from penstock.encodings.columns import batch_of, batch_of_blocks
from penstock.messages.prediction import Result


class ArrowRecords(Records):
    """As `Records`, up to `most_rows` rows in each value."""

    def __init__(
        self,
        labels: Labels,
        fits: Fits,
        most_rows: int,
        *,
        of_rows: bool = True,
        of_objects: bool = False,
    ) -> None:
        super().__init__(
            labels,
            lambda key, nbytes: fits(key, nbytes + FRAME_BYTES),
            of_rows=of_rows,
            of_objects=of_objects,
        )
        self._takes = fits
        self._most_rows = most_rows

    def encode(self, release: Release) -> Encoded:
        ticket = release.ticket
        out = Encoded([], list(failed_rows(release)))
        if self._of_rows and release.blocks:
            rows = batch_of_blocks(release.blocks).slice(published_rows(release))
            self._add_blocks(ticket, rows, _last_rows(release), out)
            out.failed.sort(key=lambda one: one.row or 0)
        if ticket.published_rows:
            out = Encoded(out.values, unpublished(ticket, out.failed))
        if ends_alone(release):
            marker = Encoded([], out.failed)
            self._add_end(ticket, marker)
            out.values.extend(map(alone, marker.values))
        return out

    def object_record(self, ticket: Ticket, result: Result) -> bytes:
        return alone(super().object_record(ticket, result))

    def _add_blocks(self, ticket: Ticket, rows: Any, last_rows: int | None, out: Encoded) -> None:
        """`rows` is a batch; with `last_rows` its last one is the object's last."""
        frame, key = self._frame_of(ticket), ticket.stream.encode()
        start, most = 0, self._most_rows
        # Once for all, as there may be many small blocks.
        slim = needed(rows)
        while start < rows.num_rows:
            count = min(most, rows.num_rows - start)
            last = last_rows if start + count == rows.num_rows else None
            value = block(frame.head(last), slim.slice(start, count))
            if self._takes(key, len(value)):
                start += count
            elif count > 1:  # so are those behind it, most likely
                most = count // 2
                continue
            else:
                value = self._too_large(ticket, rows.slice(start, 1), last, len(value), out)
                start += 1
            out.values.append(value)

    def _too_large(
        self, ticket: Ticket, row: Any, last_rows: int | None, nbytes: int, out: Encoded
    ) -> bytes:
        """The error of a single row that is too large, shortened until it fits."""
        number, member = row["row"][0].as_py(), row["member"][0].as_py()
        code, message = row["error_code"][0].as_py(), row["error_message"][0].as_py()
        if code is None:
            why = too_large(nbytes)
            out.failed.append(Failed(number, 1, member, why))
        else:
            why = Rejection(code, message, "publish")
        row = batch_of(Rows(number, [b"null"], member, {0: why}))
        value = b""
        for frame in self._frames(ticket):
            value = block(frame.head(last_rows), row)
            if self._takes(ticket.stream.encode(), len(value)):
                break
        return value


def _last_rows(release: Release) -> int | None:
    """The object's row count, if the last of these rows is its last."""
    ticket = release.ticket
    is_last = release.finished and release.blocks[-1].next is None and ticket.failure is None
    return ticket.rows if is_last else None
