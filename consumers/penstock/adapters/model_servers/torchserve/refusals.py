"""What TorchServe's refusals mean.

Rule: one status can mean several things, so the body's `type` and `message` decide. Pure functions;
owner: the TorchServe adapter.
"""

from collections.abc import Mapping

import orjson

from penstock.adapters.model_servers.http_calls import Reply
from penstock.adapters.model_servers.refusals import (
    by_status,
    clean,
    denied,
    excerpt,
    retry_after_s,
    too_large,
)
from penstock.errors import PenstockError, WorkerDied


def is_denied(reply: Reply) -> bool:
    """True for TorchServe's answer to a wrong token."""
    return reply.status == 400 and b"InvalidKeyException" in reply.body


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
    # TorchServe answers this `type` if the handler raised, also for a lack of memory (507). A 507
    # without it comes from a proxy and is about the proxy.
    is_by_handler = kind == "InternalServerException"
    too_big = too_large(url, sent_bytes)
    return by_status(status, headers, said, too_large=too_big, by_model=is_by_handler)


def _said(raw: bytes) -> tuple[str, str]:
    """TorchServe's `type` and `message`; for any other body no type and its beginning."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return "", excerpt(raw)
    message = document.get("message") if isinstance(document, dict) else None
    if not isinstance(message, str):
        return "", excerpt(raw)
    kind = document.get("type")
    return clean(kind) if isinstance(kind, str) else "", clean(message)
