"""What the tests of the window ask of a batch."""

from collections import Counter

from penstock.core.window.window import Batch, BatchWindow


def take(of: BatchWindow, now_s: float) -> Batch:
    batch = of.take(now_s)
    assert batch is not None
    return batch


def by_stream(batch: Batch) -> Counter[str]:
    rows: Counter[str] = Counter()
    for block in batch.blocks:
        rows[block.ticket.stream] += block.rows
    return rows
