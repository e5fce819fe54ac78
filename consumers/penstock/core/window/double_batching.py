"""Advice for a model server that gathers requests into batches as well.

Rule: if our requests are batches already, its gathering only adds delay. If each carries one row,
it needs many of them at once. Pure: judged by the server's answer and our own settings.
"""

from typing import Final, NamedTuple

# One batch is with the server's worker while the next is being filled.
BATCHES_A_WORKER: Final = 2


class ServerBatching(NamedTuple):
    """How TorchServe gathers the requests of a model. It does not always tell the last values."""

    batch_size: int
    max_batch_delay_ms: int
    workers: int = 1
    queue_size: int | None = None
    response_timeout_s: int | None = None


def calls_to_fill(server: ServerBatching) -> int:
    """How many calls of one row keep every worker's batches full and fit the server's queue."""
    calls = BATCHES_A_WORKER * server.batch_size * max(1, server.workers)
    return calls if server.queue_size is None else min(calls, max(1, server.queue_size))


def warning(server: ServerBatching, *, max_in_flight: int) -> str | None:
    """A TorchServe worker with one request waits up to `max_batch_delay_ms` for `batch_size - 1`
    more. When we never send that many at once, it always waits that long: then this warns.
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
