"""The model behind TorchServe's REST interface, or anything that speaks it.

Rule: one POST for each batch, the rows spliced together, never touched. Nothing is repeated here,
except once with a fresh token. Owner of one HTTP session, made at first use; the caller bounds the
calls.
"""

import asyncio
import io
import socket
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from consumers import config
from consumers.adapters import torchserve_answers
from consumers.adapters.certificates import trusting, untrusted
from consumers.core.payload import JsonRows, Matrix, Payload
from consumers.errors import EXIT_USAGE, Fatal, PenstockError, Poison, Unreachable, WorkerDied
from consumers.ports import Answers

# A model that is loading queues the question; readiness is asked again soon anyway.
READY_TIMEOUT_S: Final = 5.0
# A server that takes no connection in this time is away; the next probe should not wait for it.
CONNECT_S: Final = 5.0
# A refused connection is reset within milliseconds; a second is more than any needs.
CLOSE_LOOKS: Final = 100
CLOSE_PAUSE_S: Final = 0.01
# Above it aiohttp wants a file, to send it in pieces between which the loop can do other work.
WHOLE_BODY_BYTES: Final = 1 << 20
# TorchServe's default max_request_size. Several rows are not sent beyond it; one row is, in case
# the server takes more.
MOST_REQUEST_BYTES: Final = 6_553_500
# Of a request that was answered by 413: two or three of these reach any limit below it.
LEARNED_SHARE: Final = 0.75
LEAST_LIMIT_BYTES: Final = 1 << 16
# Ten times TorchServe's default max_response_size; and more than a person reads of a complaint.
MOST_ANSWER_BYTES: Final = 64 << 20
MOST_COMPLAINT_BYTES: Final = 1 << 16
# aiohttp would add these to every request; no answer depends on them.
_NEEDLESS_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding")


class Request(NamedTuple):
    """A body and the headers that say what it is."""

    body: bytes
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


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
        self._timeout_s = settings.timeout_ms / 1000
        self._token_file = Path(settings.token_file) if settings.token_file else None
        self._token = _read_token(self._token_file) if self._token_file else settings.token
        if self._url.user is not None and self._token is not None:
            raise Fatal(
                "model.url has a user in it, and there is a model.token: both are sent as "
                "Authorization; leave one out",
                exit_code=EXIT_USAGE,
            )
        self._version = settings.version
        self._most_bytes = MOST_REQUEST_BYTES
        is_secure = self._url.scheme == "https"
        self._trusting = trusting(settings.ssl_cafile, "model.ssl_cafile") if is_secure else True
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    @property
    def version(self) -> str | None:
        return self._version

    async def predict(self, payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        request = self._encode(payloads)
        if len(request.body) > self._most_bytes and rows > 1:
            raise Poison("too_large", f"{rows} rows are {len(request.body)} bytes")
        reply = await self._post(request, self._timeout_s)
        if self._token_file and b"InvalidKeyException" in reply.body and reply.status == 400:
            # TorchServe makes new keys every hour and writes them to its key file.
            self._token = await asyncio.to_thread(_read_token, self._token_file)
            reply = await self._post(request, self._timeout_s)
        if reply.status != torchserve_answers.OK:
            if reply.status == torchserve_answers.TOO_LARGE and rows > 1:
                learned = int(len(request.body) * LEARNED_SHARE)
                self._most_bytes = max(LEAST_LIMIT_BYTES, min(self._most_bytes, learned))
            raise self._refusal(request, reply)
        return torchserve_answers.parse(reply.body, rows)

    async def ready(self) -> bool:
        """Is an empty batch answered, if only by a complaint? `/ping` tells nothing of workers."""
        try:
            reply = await self._post(self._encode(()), min(READY_TIMEOUT_S, self._timeout_s))
        except (Unreachable, Fatal):
            return False
        if reply.status == torchserve_answers.OK:
            return True
        error = torchserve_answers.refusal(*reply, self._shown_url, 0)
        return reply.status != torchserve_answers.NOT_FOUND and not isinstance(error, WorkerDied)

    async def aclose(self) -> None:
        """Returns when the sockets are closed; one of a refused request may still be flushing."""
        if self._session is None:
            return
        await self._session.close()
        self._session = None
        for _ in range(CLOSE_LOOKS):
            if all(one.fileno() < 0 for one in self._sockets):
                break
            await asyncio.sleep(CLOSE_PAUSE_S)

    async def _post(self, request: Request, timeout_s: float) -> Reply:
        headers = dict(request.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = request.body
        data = body if len(body) <= WHOLE_BODY_BYTES else io.BytesIO(body)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open_session().post(
                    self._url, data=data, headers=headers, allow_redirects=False
                ) as response,
            ):
                return Reply(response.status, response.headers, await _read(response))
        except aiohttp.ConnectionTimeoutError:
            reason = f"no connection within {CONNECT_S:g} s"
        except TimeoutError:
            reason = f"no answer within {timeout_s:g} s (model.timeout_ms)"
        except (aiohttp.ClientError, OSError) as error:
            if untrusting := untrusted(str(error), "model.ssl_cafile"):
                raise untrusting from None
            is_refused = isinstance(error, aiohttp.ClientConnectorError)
            if len(body) > self._most_bytes and not is_refused:
                # The server hung up while it was being sent more than it reads.
                raise torchserve_answers.too_large(self._shown_url, len(body)) from None
            reason = f"{type(error).__name__}: {error}"
        raise Unreachable(f"{self._shown_url}: {reason}; check model.url and that TorchServe runs")

    def _refusal(self, request: Request, reply: Reply) -> PenstockError:
        body = reply.body
        # A server that repeats the request would have them in our answers.
        for secret in config.url_secrets(str(self._url)) | ({self._token} - {None, ""}):
            body = body.replace(str(secret).encode(), config.MASK.encode())
        return torchserve_answers.refusal(
            reply.status, reply.headers, body, self._shown_url, len(request.body)
        )

    def _new_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The caller bounds the calls: waiting for a connection here would be hidden delay.
                connector=aiohttp.TCPConnector(
                    limit=0, socket_factory=self._new_socket, ssl=self._trusting
                ),
                # aiohttp's own limit of 300 s would be a second one beside model.timeout_ms.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Nothing compressed was asked for: it would grow beyond what is bounded below.
                auto_decompress=False,
                skip_auto_headers=_NEEDLESS_HEADERS,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, as far as it may matter. Raises `Poison` for an answer beyond all measure."""
    is_answer = response.status == torchserve_answers.OK
    most_bytes = MOST_ANSWER_BYTES if is_answer else MOST_COMPLAINT_BYTES
    if response.content_length is not None and response.content_length <= most_bytes:
        return await response.read()
    parts, nbytes = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        nbytes += len(part)
        if nbytes > most_bytes:
            # Not read to its end, this connection is of no further use.
            response.close()
            break
    body = b"".join(parts)
    if nbytes > most_bytes and is_answer:
        raise Poison(
            "result_too_large",
            f"the model's answer has more than {most_bytes} bytes; answer less for each row, or "
            "lower window.max_rows",
        )
    return body[:most_bytes]


def _predictions_url(settings: config.Model) -> URL:
    """`model.url` is the server, or already the whole address of the model's predictions."""
    base = URL(settings.url)
    if base.scheme not in ("http", "https") or not base.host:
        raise Fatal(
            f"model.url = {config.shown_url(settings.url)!r} is no address; write http://host:8080",
            exit_code=EXIT_USAGE,
        )
    if "/predictions/" in base.path:
        return base
    names = [settings.name, *([settings.version] if settings.version else [])]
    path = "/".join(quote(part, safe="") for part in ("predictions", *names))
    return URL(f"{settings.url.rstrip('/')}/{path}", encoded=True)


def _read_token(path: Path) -> str:
    """The file's text, or the inference key of TorchServe's own `key_file.json`."""
    try:
        text = path.read_text().strip()
        return str(orjson.loads(text)["inference"]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fatal(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file",
            exit_code=EXIT_USAGE,
        ) from None


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
