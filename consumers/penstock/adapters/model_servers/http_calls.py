"""Calls a model over HTTP, whatever protocol its server speaks: tokens, limits, errors, health.

Rule: every failure of a connection becomes one of `penstock.errors` here. If the server refuses the
token, a request is sent once more, with a fresh one.
"""

import asyncio
import base64
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import orjson
from yarl import URL

from penstock import config
from penstock.adapters.http.answer_reader import TooLong, Unusable
from penstock.adapters.http.certificates import trusting
from penstock.adapters.model_servers.exchange import (
    MOST_ANSWER_BYTES,
    Exchange,
    NotConnected,
    Packed,
    Reply,
    Request,
    reply_of,
    rest_of_head,
)
from penstock.adapters.model_servers.refusals import TOO_LARGE
from penstock.errors import HungUp, NoAnswer, PenstockError, Poison, Unreachable, usage
from penstock.ports import Answers


class ModelToken:
    """`model.token`, or the content of `model.token_file`."""

    def __init__(self, settings: config.Model) -> None:
        self._file = Path(settings.token_file) if settings.token_file else None
        self.text = read_token(self._file) if self._file else settings.token

    async def read_again(self) -> bool:
        """Read the file again, because tokens in files are replaced while we run: TorchServe and
        Kubernetes replace theirs every hour. Returns False if no file is configured, otherwise
        True. Raises `Fatal` if the file cannot be read.
        """
        if self._file is None:
            return False
        self.text = await asyncio.to_thread(read_token, self._file)
        return True


def read_token(path: Path, api: str = "inference") -> str:
    """The file's text, or the key of one API in TorchServe's own `key_file.json`."""
    try:
        text = path.read_text().strip()
        return str(orjson.loads(text)[api]["key"]) if text.startswith("{") else text
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise usage(
            f"model.token_file {path}: {error!r}; it holds the token or is TorchServe's key file"
        ) from None


# How long a question without rows may take. This leaves a server some time to load a model:
# TorchServe queues the question meanwhile.
LOOK_S: Final = 5.0
# The first limit for the size of a request. It is far above what `window.max_bytes` allows for the
# rows. A server with a smaller limit answers 413.
MOST_REQUEST_BYTES: Final = 64 << 20
# How many values the JSON of an answer may have, by its commas. Reading a value takes up to 100
# bytes of memory, so an answer of empty objects would take forty times its size. 512 vectors of
# 8,192 numbers are half as many. A key may take 200 bytes with its entry, and counts as four.
MOST_VALUES: Final = 8 << 20
# After a 413 the limit falls to this share of the refused request's size. Two or three such steps
# reach most limits.
LEARNED_SHARE: Final = 0.75
LEAST_LIMIT_BYTES: Final = 1 << 16
# The most entries in the cache of request heads. A model has only a few addresses: for predictions,
# for health, for descriptions.
_MOST_ADDRESSES: Final = 16
# Blanks and control characters, which would break the line of a request's head.
_UNSENDABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_NOTHING: Final = Request(b"", {})
# A function that tells whether a reply has a certain meaning.
Meaning = Callable[[Reply], bool]


def is_denied(reply: Reply) -> bool:
    """True if the server, or a gateway before it, refused the token."""
    return reply.status in (401, 403)


def too_large(reply: Reply) -> bool:
    return reply.status == TOO_LARGE


class SizeLimit:
    """The most bytes of a request with several rows. The limit falls whenever the server refuses
    such a request because it is too large. A request with a single row is always sent, because the
    server may take it.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def check(self, rows: int, sent_bytes: int) -> None:
        """Raises `Poison` if the request must not be sent."""
        if sent_bytes > self.most_bytes and rows > 1:
            raise Poison("too_large", f"{rows} rows are {sent_bytes} bytes")

    def refused(self, rows: int, sent_bytes: int) -> None:
        if rows > 1:
            learned = int(sent_bytes * LEARNED_SHARE)
            self.most_bytes = max(LEAST_LIMIT_BYTES, min(self.most_bytes, learned))


class ModelHttp:
    """`post` sends rows; `look` asks the server about itself. The function `is_denied` recognises
    the answer that refuses an expired token. The function `is_too_large` recognises the answer that
    refuses a request because it is too large.
    """

    def __init__(
        self,
        settings: config.Model,
        *,
        most_bytes: int = MOST_REQUEST_BYTES,
        is_denied: Meaning = is_denied,
        is_too_large: Meaning = too_large,
    ) -> None:
        self.base = address_of(settings)
        self._timeout_s = settings.timeout_ms / 1000
        self._answer_bytes_per_row = settings.answer_bytes_per_row
        self._token = ModelToken(settings)
        if self.base.user is not None and self._token.text is not None:
            raise usage(
                "model.url has a user in it, and there is a model.token: both are sent as "
                "Authorization; leave one out"
            )
        self._limit = SizeLimit(most_bytes)
        self._is_denied = is_denied
        self._is_too_large = is_too_large
        self._url_secrets = config.url_secrets(settings.url)
        is_secure = self.base.scheme == "https"
        self._exchange = Exchange(
            self.base.raw_host or "",
            self.base.port or 0,
            trusting(settings.ssl_cafile, "model.ssl_cafile") if is_secure else None,
        )
        self._start_of = lru_cache(_MOST_ADDRESSES)(self._make_start)

    async def post(
        self,
        url: URL,
        request: Request,
        rows: int,
        *,
        method: str = "POST",
        within_s: float | None = None,
    ) -> Reply:
        """Returns the answer, whatever its status. `within_s`: if it is shorter than
        `model.timeout_ms`. Raises `Poison` if the rows or the answer are too large, and
        `Unreachable` if no answer comes.
        """
        sent_bytes = len(request.body)
        self._limit.check(rows, sent_bytes)
        timeout_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
        most_bytes = min(MOST_ANSWER_BYTES, max(1, rows) * self._answer_bytes_per_row)
        is_again = False
        while True:
            head = self._start_of(method, url) + rest_of_head(method, request)
            try:
                answer = await self._exchange.ask(head, request.body, timeout_s, most_bytes)
                reply = reply_of(answer, most_bytes)
            except (NotConnected, Packed, TooLong, Unusable, OSError) as error:
                raise self._failure(error, url, request, rows, timeout_s, most_bytes) from None
            if is_again or not self._is_denied(reply) or not await self._token.read_again():
                break
            is_again = True
            self._start_of.cache_clear()
        if self._is_too_large(reply):
            self._limit.refused(rows, sent_bytes)
        return reply if reply.is_answer else self._told(url, reply)

    async def look(self, url: URL, method: str = "GET", request: Request = _NOTHING) -> Reply:
        """Ask a question without rows, within `LOOK_S` (or a shorter `model.timeout_ms`)."""
        return await self.post(url, request, 0, method=method, within_s=LOOK_S)

    async def aclose(self) -> None:
        await self._exchange.aclose()

    def _told(self, url: URL, reply: Reply) -> Reply:
        """The refusal as errors may show it: a redirect's target as a whole address, no secrets."""
        headers = dict(reply.headers)
        if (location := headers.get("Location")) is not None:
            with suppress(ValueError):  # if it is no URL, a person may still know what is meant
                location = str(url.join(URL(location)))
            headers["Location"] = self.masked_text(config.shown_url(location))
        return reply._replace(headers=headers, body=self._masked(reply.body))

    def _failure(
        self,
        error: Exception,
        url: URL,
        request: Request,
        rows: int,
        timeout_s: float,
        most_bytes: int,
    ) -> PenstockError:
        """What it means that no answer came, or none that can be read."""
        if isinstance(error, NotConnected):
            return Unreachable(self._said(url, str(error)))
        if isinstance(error, Packed):
            return usage(
                f"{config.shown_url(str(url))} packs its answers (Content-Encoding: {error}), "
                "which the requests do not allow; switch that off at the server, or at the proxy "
                "before it"
            )
        if isinstance(error, TooLong):
            return Poison(
                "result_too_large",
                f"the model's answer has more than {most_bytes} bytes "
                "(model.answer_bytes_per_row, at most 64 MiB in all); answer less for each row, "
                "raise the limit, or lower window.max_rows",
            )
        if isinstance(error, TimeoutError):
            reason = f"no answer within {timeout_s:g} s (model.timeout_ms)"
            lost = NoAnswer(self._said(url, reason))
        else:
            reason = f"{type(error).__name__}: {self.masked_text(str(error))}"
            # The server may have hung up because the request is too large for it, or because the
            # server died. After an oversize request the caller tries smaller requests first.
            is_oversize = len(request.body) > self._limit.most_bytes
            if is_oversize:
                reason = f"{reason} under a request of {len(request.body)} bytes"
            lost = HungUp(self._said(url, reason), is_oversize=is_oversize)
        lost.sent = request.shown(rows)
        return lost

    def _make_start(self, method: str, url: URL) -> bytes:
        """The beginning of a request's head, which is the same for all requests to this address."""
        if _UNSENDABLE.search(url.raw_path_qs) or _UNSENDABLE.search(self._token.text or ""):
            raise usage(
                "model.url, model.name or the model's token has a blank or a control character in "
                "it, which a request cannot carry"
            )
        lines = [
            f"{method} {url.raw_path_qs} HTTP/1.1",
            f"Host: {url.host_port_subcomponent}",
            # Without this line a server may pack its answer in any way (RFC 9110, 12.5.3).
            "Accept-Encoding: identity",
        ]
        if self._token.text is not None:
            lines.append(f"Authorization: Bearer {self._token.text}")
        elif url.user is not None:
            name = f"{url.user}:{url.password or ''}".encode()
            lines.append(f"Authorization: Basic {base64.b64encode(name).decode()}")
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _said(self, url: URL, reason: str) -> str:
        hint = "check model.url and that the model server runs"
        return f"{config.shown_url(str(url))}: {reason}; {hint}"

    def masked_text(self, text: str) -> str:
        return self._masked(text.encode()).decode()

    def _masked(self, body: bytes) -> bytes:
        """Mask our secrets, because a server may quote the request in an error that we publish."""
        for secret in self._url_secrets | ({self._token.text} - {None, ""}):
            body = body.replace(str(secret).encode(), config.MASK.encode())
        return body


def address_of(settings: config.Model) -> URL:
    """Returns `model.url`. Its scheme must be http or https, and it must have a host."""
    try:
        base = URL(settings.url)
    except ValueError:
        # The error does not show the URL: only a URL that can be parsed can have its secrets
        # masked.
        said = "model.url cannot be read: check host and port, as in http://host:8080"
        raise usage(said) from None
    if base.scheme not in ("http", "https") or not base.host:
        raise usage(
            f"model.url = {config.shown_url(settings.url)!r} is not an address; "
            "write http://host:8080"
        )
    return base


class HttpModel:
    """The part of the port `Model` that all models over HTTP share."""

    # The most rows of one request. None: the server has not told a limit.
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
        except PenstockError:
            return False
        return True

    async def check(self) -> None:
        """Returns if the model is there; otherwise raises an error that tells why the model is not
        there.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        await self._http.aclose()


def _values(body: bytes) -> int:
    """How many values the JSON has at most, with its keys."""
    commas = body.count(b",")
    keys = commas + body.count(b"{")  # each follows one of them
    if commas <= MOST_VALUES < commas + 3 * keys:
        keys = sum(map(body.count, (b'":', b'" ', b'"\n', b'"\r', b'"\t')))
    return commas + 3 * keys


def read_answer(
    read: Callable[[bytes, int], Answers], reply: Reply, rows: int, request: Request
) -> Answers:
    """Returns the answers that the function `read` finds in the body of a 200. If `read` raises
    `Poison`, the error also shows what was sent.
    """
    try:
        if len(reply.body) > MOST_VALUES and _values(reply.body) > MOST_VALUES:
            said = (
                f"the model's answer has more than {MOST_VALUES} values; answer less for each row"
            )
            raise Poison("result_too_large", said)
        return read(reply.body, rows)
    except Poison as error:
        error.sent = request.shown(rows)
        raise
