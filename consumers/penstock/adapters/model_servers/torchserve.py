"""TorchServe, or anything that speaks its REST interface: predictions and refusals.

Rule: each batch is sent by one POST; the rows' bytes are joined unchanged. One status can mean
several things, so a refusal's `type` and `message` decide. The caller limits how many calls are
open at a time.

What the server tells of itself is read by `torchserve_management`. Owner: the application, and
`penstock doctor`.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import orjson
from yarl import URL

from penstock import config, requests
from penstock.adapters.model_servers import row_answers
from penstock.adapters.model_servers.exchange import Reply, Request
from penstock.adapters.model_servers.http_calls import (
    HttpModel,
    ModelHttp,
    address_of,
    is_denied,
    read_answer,
)
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
from penstock.core.rows.payload import Payload
from penstock.errors import PenstockError, Poison, WorkerDied
from penstock.ports import Answers

# TorchServe's default max_request_size. Several rows are never sent in a larger request. A single
# row is sent even if the request is larger, in case the server takes more.
MOST_REQUEST_BYTES: Final = 6_553_500


class TorchServeModel(HttpModel):
    """Implements the port `Model`."""

    def __init__(self, settings: config.Model) -> None:
        self._form = requests.find(settings.request)
        self.url = _predictions_url(settings)
        self._shown_url = config.shown_url(str(self.url))
        http = ModelHttp(settings, most_bytes=MOST_REQUEST_BYTES, is_denied=_is_denied)
        super().__init__(settings, http)

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        if self._form.single and rows > 1:
            raise Poison("too_large", f"{rows} rows; this request carries one")
        request = self.request(payloads)
        reply = await self._http.post(self.url, request, rows)
        if not reply.is_answer:
            raise refusal(*reply, self._shown_url, len(request.body))
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
    said = f"{url} answered {status} {kind}: {message}".replace(" : ", ": ")
    if message.startswith("Worker died"):
        return WorkerDied(said, retry_after_s=retry_after_s(headers))
    if kind == "InvalidKeyException":
        return denied(said)
    # If the handler raised, TorchServe answers with this `type`, even if the status is 507, which
    # TorchServe also sends for a lack of memory. A 507 without this `type` comes from a proxy and
    # is about the proxy.
    is_by_handler = kind == "InternalServerException"
    too_big = too_large(url, sent_bytes)
    return by_status(status, headers, said, too_large=too_big, by_model=is_by_handler)


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
