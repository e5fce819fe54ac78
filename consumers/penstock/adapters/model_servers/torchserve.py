"""TorchServe, or anything that speaks its REST interface, and its management API.

Rule: one status can mean several things, so a refusal's `type` and `message` decide.

A worker starts even if the management API does not answer. That API runs whatever archive it is
told to load, so its token is sent only to `model.management_url`: an address that follows from
`model.url` is a guess.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec
import orjson
from yarl import URL

from penstock import config
from penstock.adapters.http.certificates import trusting
from penstock.adapters.model_servers import request_forms, row_answers
from penstock.adapters.model_servers.access import address_of, read_token
from penstock.adapters.model_servers.http_calls import (
    USUAL_BOUNDS,
    AnswerBounds,
    HttpModel,
    ModelHttp,
    Reply,
    Request,
    is_denied,
)
from penstock.adapters.model_servers.offers import with_offers
from penstock.adapters.model_servers.refusals import (
    NOT_FOUND,
    OK,
    by_status,
    clean,
    denied,
    excerpt,
    retry_after_s,
    too_large,
)
from penstock.adapters.model_servers.row_answers import read_answer
from penstock.core.rows.payload import Payload
from penstock.errors import PenstockError, Poison, WorkerDied
from penstock.ports import Answers

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


class _JobQueue(msgspec.Struct, rename="camel"):
    remaining_capacity: int
    pending_requests: int


class _Description(msgspec.Struct, rename="camel"):
    batch_size: int
    max_batch_delay: int
    workers: list[msgspec.Raw] = []
    response_timeout: int | None = None
    job_queue_status: _JobQueue | None = None


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
    batching = ServerBatching(
        batch_size=model.batch_size,
        max_batch_delay_ms=model.max_batch_delay,
        workers=len(model.workers),
        queue_size=queue.remaining_capacity + queue.pending_requests if queue else None,
        response_timeout_s=model.response_timeout,
    )
    log.debug("%s: %s", config.shown_url(str(url)), batching)
    return batching


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


# TorchServe's default max_request_size. Several rows are never sent in a larger request. A single
# row is sent even if the request is larger, in case the server takes more.
MOST_REQUEST_BYTES: Final = 6_553_500


class TorchServeModel(HttpModel):
    """Implements the port `Model`."""

    def __init__(self, settings: config.Model, bounds: AnswerBounds = USUAL_BOUNDS) -> None:
        self._form = request_forms.find(settings.request)
        self.url = _predictions_url(settings)
        self._shown_url = config.shown_url(str(self.url))
        http = ModelHttp(settings, bounds, most_bytes=MOST_REQUEST_BYTES, is_denied=_is_denied)
        super().__init__(settings, http)

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        if self._form.single and rows > 1:
            raise Poison("too_large", f"{rows} rows; this request carries one")
        request = self.request(payloads)
        reply = await self._http.post(self.url, request, rows)
        if not reply.is_answer:
            error = refusal(*reply, self._shown_url, len(request.body))
            raise await with_offers(error, self._http)
        parse = row_answers.parse_single if self._form.single else row_answers.parse
        return read_answer(parse, reply, rows, request)

    def request(self, payloads: Sequence[Payload]) -> Request:
        """The body and headers that `predict` posts for these rows."""
        return Request(*self._form.encode(payloads))

    async def ready(self) -> bool:
        """True if an empty batch gets an answer, even a refusal: this shows that a worker of the
        model runs. An answer of `/ping` would not show it.
        """
        try:
            reply = await self._http.look(self.url, "POST", self.request(()))
        except PenstockError:
            return False
        if reply.status == OK:
            return True
        error = refusal(*reply, self._shown_url, 0)
        return reply.status != NOT_FOUND and not isinstance(error, WorkerDied)


def _is_denied(reply: Reply) -> bool:
    """True if the token was refused: TorchServe itself then answers 400, and a gateway before it
    answers 401 or 403.
    """
    is_by_torchserve = reply.status == 400 and b"InvalidKeyException" in reply.body
    return is_by_torchserve or is_denied(reply)


def refusal(
    status: int, headers: Mapping[str, str], raw: bytes, url: str, sent_bytes: int
) -> PenstockError:
    """The error that an answer other than 200 means; `sent_bytes`: the size of the request."""
    kind, message = _said(raw)
    text = f"{url} answered {status} {kind}: {message}".replace(" : ", ": ")
    if message.startswith("Worker died"):
        return WorkerDied(text, retry_after_s=retry_after_s(headers))
    if kind == "InvalidKeyException":
        return denied(text)
    # If the handler raised, TorchServe answers with this `type`, even if the status is 507, which
    # TorchServe also sends for a lack of memory. A 507 without this `type` comes from a proxy and
    # is about the proxy.
    is_by_handler = kind == "InternalServerException"
    too_big = too_large(url, sent_bytes)
    return by_status(status, headers, text, too_large=too_big, by_model=is_by_handler)


def _said(raw: bytes) -> tuple[str, str]:
    """TorchServe's `type` and `message`. If the body is of another form, the `type` is empty and
    the `message` is the beginning of the body.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return "", excerpt(raw)
    message = document.get("message") if isinstance(document, dict) else None
    if not isinstance(message, str):
        return "", excerpt(raw)
    kind = document.get("type")
    return clean(kind) if isinstance(kind, str) else "", clean(message)


def _predictions_url(settings: config.Model) -> URL:
    """The address of the model's predictions. `model.url` may be that address already."""
    base = address_of(settings)
    if "/predictions/" in base.path:
        return base
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = "/".join(quote(part, safe="") for part in ("predictions", *names))
    return URL(f"{settings.url.rstrip('/')}/{path}", encoded=True)
