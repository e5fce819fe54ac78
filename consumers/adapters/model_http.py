"""Requests to a model server over HTTP, whatever protocol it speaks.

Rule: every failure of the client library becomes one of our errors here; nothing is repeated,
except once with a fresh token. Owner of one HTTP session, made at first use; the caller
bounds the calls.
"""

import asyncio
import io
import socket
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import orjson
from aiohttp.connector import Connection
from yarl import URL

from consumers import config
from consumers.adapters.certificates import trusting, untrusted
from consumers.adapters.model_refusals import OK, TOO_LARGE
from consumers.errors import EXIT_USAGE, Fatal, NoAnswer, Poison, Transient, Unreachable

# A server that takes no connection in this time is away; the next probe should not wait for it.
CONNECT_S: Final = 5.0
# A refused connection is reset within milliseconds; a second is more than any needs.
CLOSE_LOOKS: Final = 100
CLOSE_PAUSE_S: Final = 0.01
# Above it aiohttp wants a file, to send it in pieces between which the loop can do other work.
WHOLE_BODY_BYTES: Final = 1 << 20
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


_NOTHING: Final = Request(b"", {})
Says = Callable[[Reply], bool]


def unauthorized(reply: Reply) -> bool:
    return reply.status == 401


def too_large(reply: Reply) -> bool:
    return reply.status == TOO_LARGE


class ModelHttp:
    """`rows` may be sent with `post`; `look` asks what a server tells of itself.

    Several rows are not sent in more than `most_bytes`, which falls when the server says that
    a request `is_too_large`; one row always is. `is_denied` tells an answer to a token that is
    no longer good.
    """

    def __init__(
        self,
        settings: config.Model,
        *,
        most_bytes: int,
        is_denied: Says = unauthorized,
        is_too_large: Says = too_large,
    ) -> None:
        self.base = address_of(settings)
        self._timeout_s = settings.timeout_ms / 1000
        self._token_file = Path(settings.token_file) if settings.token_file else None
        self._token = read_token(self._token_file) if self._token_file else settings.token
        if self.base.user is not None and self._token is not None:
            raise Fatal(
                "model.url has a user in it, and there is a model.token: both are sent as "
                "Authorization; leave one out",
                exit_code=EXIT_USAGE,
            )
        self._most_bytes = most_bytes
        self._is_denied = is_denied
        self._is_too_large = is_too_large
        self._url_secrets = config.url_secrets(settings.url)
        is_secure = self.base.scheme == "https"
        self._trusting = trusting(settings.ssl_cafile, "model.ssl_cafile") if is_secure else True
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def post(self, url: URL, request: Request, rows: int) -> Reply:
        """An answer of any status. Raises `Poison` for what is too large, `Unreachable`."""
        sent_bytes = len(request.body)
        if sent_bytes > self._most_bytes and rows > 1:
            raise Poison("too_large", f"{rows} rows are {sent_bytes} bytes")
        reply = await self._with_good_token("POST", url, request, self._timeout_s)
        if rows > 1 and self._is_too_large(reply):
            learned = int(sent_bytes * LEARNED_SHARE)
            self._most_bytes = max(LEAST_LIMIT_BYTES, min(self._most_bytes, learned))
        return reply

    async def look(
        self, url: URL, most_s: float, method: str = "GET", request: Request = _NOTHING
    ) -> Reply:
        """The same for a question without rows, answered sooner or not at all."""
        return await self._with_good_token(method, url, request, min(most_s, self._timeout_s))

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

    async def _with_good_token(
        self, method: str, url: URL, request: Request, timeout_s: float
    ) -> Reply:
        reply = await self._send(method, url, request, timeout_s)
        if self._token_file and self._is_denied(reply):
            # Tokens in files are made anew: TorchServe's every hour, Kubernetes' within one.
            self._token = await asyncio.to_thread(read_token, self._token_file)
            reply = await self._send(method, url, request, timeout_s)
        return reply if reply.status == OK else reply._replace(body=self._masked(reply.body))

    async def _send(self, method: str, url: URL, request: Request, timeout_s: float) -> Reply:
        headers = dict(request.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = request.body
        data = body if len(body) <= WHOLE_BODY_BYTES else io.BytesIO(body)
        shown_url = config.shown_url(str(url))
        hint = "check model.url and that the model server runs"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open_session().request(
                    method, url, data=data or None, headers=headers, allow_redirects=False
                ) as response,
            ):
                return Reply(response.status, response.headers, await _read(response))
        except aiohttp.ConnectionTimeoutError:
            raise Unreachable(
                f"{shown_url}: no connection within {CONNECT_S:g} s; {hint}"
            ) from None
        except TimeoutError:
            reason = f"no answer within {timeout_s:g} s (model.timeout_ms)"
        except (aiohttp.ClientError, OSError) as error:
            if untrusting := untrusted(str(error), "model.ssl_cafile"):
                raise untrusting from None
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, aiohttp.ClientConnectorError):
                raise Unreachable(f"{shown_url}: {reason}; {hint}") from None
            if len(body) > self._most_bytes:
                # Perhaps it hung up because it is sent more than it reads; perhaps it died.
                reason = f"{reason} under a request of {len(body)} bytes"
                raise NoAnswer(f"{shown_url}: {reason}; {hint}", is_oversize=True) from None
        raise NoAnswer(f"{shown_url}: {reason}; {hint}")

    def _masked(self, body: bytes) -> bytes:
        """A server that repeats the request would have its secrets in our answers."""
        for secret in self._url_secrets | ({self._token} - {None, ""}):
            body = body.replace(str(secret).encode(), config.MASK.encode())
        return body

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
                response_class=_Response,
            )
        return self._session


class HttpModel:
    """What the port `Model` is over HTTP, whatever is sent: a subclass predicts and checks."""

    # In one request, as far as the server says.
    most_rows: int | None = None

    def __init__(self, settings: config.Model, http: ModelHttp) -> None:
        self._http = http
        self._version = settings.version

    @property
    def version(self) -> str | None:
        return self._version

    async def ready(self) -> bool:
        try:
            await self.check()
        except (Transient, Fatal):
            return False
        return True

    async def check(self) -> None:
        """Is the model there? Raises what its absence means."""
        raise NotImplementedError

    async def aclose(self) -> None:
        await self._http.aclose()


class _Response(aiohttp.ClientResponse):
    """Its connection is not used again after a complaint: many servers (all on uvicorn, when the
    model raised) hang up then without saying so, and the next request would be lost.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        await super().start(connection)
        if self.status >= 400 and protocol is not None:
            if self.connection is None:
                # Read whole already and handed back, but nobody has had the time to take it.
                protocol.close()
            else:
                protocol.force_close()
        return self


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, as far as it may matter. Raises `Poison` for an answer beyond all measure."""
    is_answer = response.status == OK
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


def address_of(settings: config.Model) -> URL:
    """`model.url`, which must be one."""
    base = URL(settings.url)
    if base.scheme not in ("http", "https") or not base.host:
        raise Fatal(
            f"model.url = {config.shown_url(settings.url)!r} is no address; write http://host:8080",
            exit_code=EXIT_USAGE,
        )
    return base


def read_token(path: Path) -> str:
    """The file's text, or the inference key of TorchServe's own `key_file.json`."""
    try:
        text = path.read_text().strip()
        return str(orjson.loads(text)["inference"]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fatal(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file",
            exit_code=EXIT_USAGE,
        ) from None
