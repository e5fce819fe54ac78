"""What TorchServe's management API tells of a model's settings, for advice to people.

Rule: a look, never a condition: what does not answer in time, or is no TorchServe, is None and a
debug line. No token goes along, because the address may be a guess.
"""

import asyncio
import logging
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from consumers import config
from consumers.adapters.certificates import trusting
from consumers.core.double_batching import ServerBatching

log = logging.getLogger(__name__)

# The start of a worker waits for this look.
LOOK_S: Final = 1.0


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
    """Of the model of `settings`, as far as its server tells."""
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
        log.debug("the model server tells nothing of its batching: %r", error)
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
    """On `model.management_url`, or by TorchServe's convention on the port after `model.url`'s.
    Raises `ValueError` where there can be none.
    """
    served = URL(settings.url)
    base = URL(settings.management_url or served.origin().with_port((served.port or 0) + 1))
    # `model.url` may be the whole address of the predictions already.
    _, _, named = served.raw_path.partition("/predictions/")
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = named or "/".join(quote(part, safe="") for part in names)
    return URL(f"{str(base).rstrip('/')}/models/{path}", encoded=True)
