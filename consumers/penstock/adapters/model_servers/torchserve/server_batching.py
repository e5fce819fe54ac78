"""Asks TorchServe's management API how TorchServe batches, to fit our calls and advise the
operator.

Rule: a worker starts even if no answer comes. If the server does not answer in time, or is not
TorchServe, the result is None, and a debug line says why. No token is sent, because the address may
be a guess. Owner: the start of a worker and `penstock doctor`.
"""

import asyncio
import logging
from typing import Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from penstock import config
from penstock.adapters.http.certificates import trusting

log = logging.getLogger(__name__)

# Short, because the start of a worker waits for this look.
LOOK_S: Final = 1.0
# One batch is with the server's worker while the next is being filled.
BATCHES_A_WORKER: Final = 2


class ServerBatching(NamedTuple):
    """How TorchServe gathers the requests of a model. Some versions of TorchServe do not tell the
    last three fields.
    """

    batch_size: int
    max_batch_delay_ms: int
    workers: int = 1
    queue_size: int | None = None
    response_timeout_s: int | None = None


class _Queue(msgspec.Struct, rename="camel"):
    remaining_capacity: int
    pending_requests: int


class _Description(msgspec.Struct, rename="camel"):
    batch_size: int
    max_batch_delay: int
    workers: list[msgspec.Raw] = []
    response_timeout: int | None = None
    job_queue_status: _Queue | None = None


async def server_batching(settings: config.Model) -> ServerBatching | None:
    """How this model's server batches; None if the server is not TorchServe, or does not tell."""
    if settings.protocol != "torchserve":
        return None
    secure = trusting(settings.ssl_cafile, "model.ssl_cafile")
    try:
        url = _description_url(settings)
        async with (
            asyncio.timeout(LOOK_S),
            aiohttp.ClientSession() as session,
            session.get(url, allow_redirects=False, ssl=secure) as response,
        ):
            model = msgspec.json.decode(await response.read(), type=list[_Description])[0]
    except (aiohttp.ClientError, OSError, ValueError, LookupError) as error:
        log.debug("the model server does not tell how it batches: %r", error)
        return None
    queue = model.job_queue_status
    found = ServerBatching(
        batch_size=model.batch_size,
        max_batch_delay_ms=model.max_batch_delay,
        workers=len(model.workers),
        queue_size=queue.remaining_capacity + queue.pending_requests if queue else None,
        response_timeout_s=model.response_timeout,
    )
    log.debug("%s: %s", config.shown_url(str(url)), found)
    return found


def _description_url(settings: config.Model) -> URL:
    """The model's address at `model.management_url`. The default follows TorchServe's convention:
    the port after that of `model.url`. Raises `ValueError` if `model.url` has no such port.
    """
    served = URL(settings.url)
    base = URL(settings.management_url or served.origin().with_port((served.port or 0) + 1))
    # `model.url` may be the whole address of the predictions already.
    _, _, named = served.raw_path.partition("/predictions/")
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = named or "/".join(quote(part, safe="") for part in names)
    return URL(f"{str(base).rstrip('/')}/models/{path}", encoded=True)


def calls_to_fill(server: ServerBatching) -> int:
    """How many calls of one row keep every worker's batches full and fit the server's queue."""
    calls = BATCHES_A_WORKER * server.batch_size * max(1, server.workers)
    return calls if server.queue_size is None else min(calls, max(1, server.queue_size))


def double_batching_warning(server: ServerBatching, *, max_in_flight: int) -> str | None:
    """A warning if TorchServe delays our batches, else None. A TorchServe worker that has one
    request waits up to `max_batch_delay_ms` for `batch_size - 1` more requests. If we never send so
    many at once, the worker always waits for the whole time.
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
