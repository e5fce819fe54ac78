"""What it costs when the model server gathers requests that are batches already.

Rule: pure; from what the server said and our own settings to a sentence for people, or None.
"""

from typing import NamedTuple


class ServerBatching(NamedTuple):
    """How TorchServe gathers the requests of a model; the last two only where it tells them."""

    batch_size: int
    max_batch_delay_ms: int
    queue_size: int | None = None
    response_timeout_s: int | None = None


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
