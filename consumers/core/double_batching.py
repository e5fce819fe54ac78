"""The model server gathers requests, too: what that costs where they are batches already, and how
many it needs at a time where each carries one row.

Rule: pure; from what the server said and our own settings.
"""

from typing import Final, NamedTuple

# One batch is with the worker, the next is being filled.
BATCHES_A_WORKER: Final = 2


class ServerBatching(NamedTuple):
    """How TorchServe gathers the requests of a model; the last ones only where it tells them."""

    batch_size: int
    max_batch_delay_ms: int
    workers: int = 1
    queue_size: int | None = None
    response_timeout_s: int | None = None


def calls_to_fill(server: ServerBatching) -> int:
    """Calls of one row that keep every worker's batches full, within the server's queue."""
    calls = BATCHES_A_WORKER * server.batch_size * max(1, server.workers)
    return calls if server.queue_size is None else min(calls, max(1, server.queue_size))


def warning(server: ServerBatching, *, max_in_flight: int) -> str | None:
    """A worker of TorchServe that has one request waits for `batch_size - 1` more, at most
    `max_batch_delay_ms`: it waits in full whenever there cannot be that many.
    """
    size, delay_ms = server.batch_size, server.max_batch_delay_ms
    if size <= 1 or delay_ms <= 0:
        return None
    often = (
        f"with model.max_in_flight {max_in_flight} < {size} one worker's calls always do"
        if max_in_flight < size
        else f"with model.max_in_flight {max_in_flight} they do whenever fewer than {size} wait"
    )
    return (
        f"the model server batches what is batched already (batchSize {size}, maxBatchDelay "
        f"{delay_ms} ms): every call may wait up to {delay_ms} ms for {size - 1} others; {often}. "
        "Set the model's batchSize to 1."
    )
