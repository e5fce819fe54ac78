"""The model behind TorchServe's REST interface, or anything that speaks it.

Rule: one POST for each batch, the rows spliced together, never touched. The caller bounds the
calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast
from urllib.parse import quote

from yarl import URL

from consumers import config
from consumers.adapters import model_answers, torchserve_refusals
from consumers.adapters.model_http import ModelHttp, Request, address_of
from consumers.adapters.model_refusals import NOT_FOUND, OK
from consumers.core.payload import JsonRows, Matrix, Payload
from consumers.errors import EXIT_USAGE, Fatal, Unreachable, WorkerDied
from consumers.ports import Answers

# A model that is loading queues the question; readiness is asked again soon anyway.
READY_TIMEOUT_S: Final = 5.0
# TorchServe's default max_request_size. Several rows are not sent beyond it; one row is, in case
# the server takes more.
MOST_REQUEST_BYTES: Final = 6_553_500


class TorchServeModel:
    """The port `Model`."""

    def __init__(self, settings: config.Model) -> None:
        encode = _ENCODERS.get(settings.request)
        if encode is None:
            raise Fatal(
                f"model.request = {settings.request!r} is not available with TorchServe yet; "
                f"choose one of {', '.join(_ENCODERS)}",
                exit_code=EXIT_USAGE,
            )
        self._encode = encode
        self._url = _predictions_url(settings)
        self._shown_url = config.shown_url(str(self._url))
        self._http = ModelHttp(
            settings, most_bytes=MOST_REQUEST_BYTES, is_denied=torchserve_refusals.is_denied
        )
        self._version = settings.version

    @property
    def version(self) -> str | None:
        return self._version

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        request = self._encode(payloads)
        reply = await self._http.post(self._url, request, rows)
        if reply.status != OK:
            raise torchserve_refusals.refusal(*reply, self._shown_url, len(request.body))
        return model_answers.parse(reply.body, rows)

    async def ready(self) -> bool:
        """Is an empty batch answered, if only by a complaint? `/ping` tells nothing of workers."""
        try:
            reply = await self._http.look(self._url, READY_TIMEOUT_S, "POST", self._encode(()))
        except (Unreachable, Fatal):
            return False
        if reply.status == OK:
            return True
        error = torchserve_refusals.refusal(*reply, self._shown_url, 0)
        return reply.status != NOT_FOUND and not isinstance(error, WorkerDied)

    async def aclose(self) -> None:
        await self._http.aclose()


def _predictions_url(settings: config.Model) -> URL:
    """`model.url` is the server, or already the whole address of the model's predictions."""
    base = address_of(settings)
    if "/predictions/" in base.path:
        return base
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = "/".join(quote(part, safe="") for part in ("predictions", *names))
    return URL(f"{settings.url.rstrip('/')}/{path}", encoded=True)


_JSON: Final = {"Content-Type": "application/json"}


def _as_json(payloads: Sequence[Payload]) -> Request:
    rows = cast("Sequence[JsonRows]", payloads)
    return Request(b"[%b]" % b",".join([payload.body for payload in rows]), _JSON)


def _as_instances(payloads: Sequence[Payload]) -> Request:
    rows = cast("Sequence[JsonRows]", payloads)
    return Request(b'{"instances":[%b]}' % b",".join([payload.body for payload in rows]), _JSON)


def _as_float32(payloads: Sequence[Payload]) -> Request:
    matrices = [payload.values.data for payload in cast("Sequence[Matrix]", payloads)]
    headers = {
        "Content-Type": "application/octet-stream",
        "X-Rows": str(sum(map(len, matrices))),
    }
    return Request(b"".join(matrices), headers)


_ENCODERS: Final[Mapping[str, Callable[[Sequence[Payload]], Request]]] = {
    "json": _as_json,
    "instances": _as_instances,
    "float32": _as_float32,
}
