"""TorchServe's management API: how the server gathers requests into batches, and a session for the
programs that register models.

Rule: at the start TorchServe is asked how it batches. The answer decides how many calls are open at
a time, or gives the operator advice. A worker starts even if no answer comes: if the server does
not answer in time, or is not TorchServe, the result is None, and a debug line says why.

The management API runs whatever archive it is told to load. So TorchServe may ask for a token of
its own, which `key_file.json` (`model.token_file`) holds beside that of the predictions, or listen
on a Unix socket, which no web page reaches. The token is sent only to `model.management_url`: an
address that follows from `model.url` is a guess. Owner: the application, `penstock doctor`, and
`penstock bench`.
"""

import logging
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from penstock import config
from penstock.adapters.http.certificates import trusting
from penstock.adapters.model_servers.token_file import read_token

log = logging.getLogger(__name__)

# How long the question about the server's batching may take. The time is short, because the start
# of a worker waits for the answer.
LOOK_S: Final = 1.0
# Two: one batch is with the server's worker while the next is being filled.
BATCHES_A_WORKER: Final = 2
_UNIX: Final = "unix"
# What is asked for through a Unix socket: HTTP wants a host, and TorchServe does not look at it.
_BY_SOCKET: Final = URL("http://localhost")


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


def management(settings: config.Model, *, timeout_s: float) -> tuple[aiohttp.ClientSession, URL]:
    """A session for the management API, and the API's address. If `model.management_url` is not
    set, TorchServe's convention is followed: the port is that of `model.url` plus one. Raises
    `ValueError` if `model.url` has no such port. Make the session on the event loop that uses it.
    """
    named = settings.management_url
    served = URL(settings.url)
    base = URL(named or served.origin().with_port((served.port or 0) + 1))
    headers = {}
    if named and settings.token_file:
        headers["Authorization"] = f"Bearer {read_token(Path(settings.token_file), 'management')}"
    is_socket = base.scheme == _UNIX
    session = aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(base.path)
        if is_socket
        else aiohttp.TCPConnector(ssl=trusting(settings.ssl_cafile, "model.ssl_cafile")),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers=headers,
    )
    return session, _BY_SOCKET if is_socket else base


async def server_batching(settings: config.Model) -> ServerBatching | None:
    """How the server gathers requests of this model into batches; None if the server is not
    TorchServe, or does not tell.
    """
    if settings.protocol != "torchserve":
        return None
    try:
        session, base = management(settings, timeout_s=LOOK_S)
        url = _description_url(settings, base)
        async with session, session.get(url, allow_redirects=False) as response:
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


def _description_url(settings: config.Model, base: URL) -> URL:
    # `model.url` may be the whole address of the predictions already.
    _, _, named = URL(settings.url).raw_path.partition("/predictions/")
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = named or "/".join(quote(part, safe="") for part in names)
    return URL(f"{str(base).rstrip('/')}/models/{path}", encoded=True)


def calls_to_fill(server: ServerBatching) -> int:
    """How many calls with one row each keep every worker's batches full and still fit into the
    server's queue.
    """
    calls = BATCHES_A_WORKER * server.batch_size * max(1, server.workers)
    return calls if server.queue_size is None else min(calls, max(1, server.queue_size))


def double_batching_warning(server: ServerBatching, *, max_in_flight: int) -> str | None:
    """Return a warning if TorchServe delays our batches, else None. A TorchServe worker that has
    one request waits up to `max_batch_delay_ms` for `batch_size - 1` more requests. If we never
    have `batch_size` requests open at once, the worker always waits for the whole time.
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
