"""Asks running workers for status and pages, and those of `http.peers` for the way of one object.

Rule: the token is not sent, because another program may have taken the port, but a proof, good for
one page and a few minutes. What changes something is asked for with the token only. If no worker
listens, the result says so and nothing is raised. A name of `http.peers` is resolved each time,
because workers come and go.
"""

import asyncio
import hmac
import socket
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

from penstock import config
from penstock.errors import Fatal, usage

# The clocks of two machines may differ by so much.
MOST_S: Final = 300
_MOST_DIGITS: Final = 20
_SCHEME: Final = "Penstock "


def proof(token: str, path: str, at_s: int) -> str:
    """The header `Authorization` of a GET. `path`: with the query, as it is sent."""
    digest = hmac.digest(token.encode(), f"GET {path} at {at_s}".encode(), "sha256")
    return f"{_SCHEME}{at_s}:{digest.hex()}"


def is_proof(given: str, token: str, path: str, now_s: float) -> bool:
    at_s = given.removeprefix(_SCHEME).partition(":")[0]
    is_number = at_s.isascii() and at_s.isdigit() and len(at_s) <= _MOST_DIGITS
    if not is_number or abs(int(at_s) - now_s) > MOST_S:
        return False
    right = proof(token, path, int(at_s))
    return hmac.compare_digest(given.encode(errors="surrogateescape"), right.encode())


def proving(token: str | None) -> tuple[ClientMiddlewareType, ...]:
    """The middlewares of a session that asks workers."""

    async def prove(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        assert token is not None
        at = request.url.raw_path_qs
        request.headers["Authorization"] = proof(token, at, int(time.time()))
        return await send(request)

    return (prove,) if token else ()


UNAUTHORIZED: Final = 401
# The default of `http.port`.
PORT: Final = 8900
RESOLVE_S: Final = 2.0
# How many peers are asked at most, how many at a time, and how long an answer may take. The live
# page has the same bounds.
MOST_PEERS: Final = 64
AT_A_TIME: Final = 16
# The status of 5,000 streams takes 2 MB, and `/metrics` no more.
MOST_BYTES: Final = 16 << 20
WAIT: Final = aiohttp.ClientTimeout(total=5)
# If a worker listens on all addresses of this machine, it is asked at the local address.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class ReportedBatch(msgspec.Struct):
    """The request to the model that answered the object's last rows. `rows`: how many rows the
    request carried. `objects`: from how many objects these rows were. `request`: the number of this
    request among the requests that were made for the same batch.
    """

    rows: int
    objects: int
    request: int


class ReportedWay(msgspec.Struct):
    """The way of an object to the output topic. `times_ms`: for each stage, by name, how long it
    took.
    """

    host: str
    pid: int
    took_ms: float
    times_ms: dict[str, float]
    batch: ReportedBatch | None


def url_of(http: config.Http) -> str:
    return f"http://{_EVERYWHERE.get(http.host, http.host)}:{http.port}"


async def page_of(http: config.Http, path: str, within_s: float) -> bytes | None:
    """The body of one of the worker's pages. None: no answer with status 200 came within
    `within_s`.
    """
    url, timeout = f"{url_of(http)}{path}", aiohttp.ClientTimeout(total=within_s)
    try:
        async with (
            _session(http) as session,
            session.get(url, timeout=timeout, allow_redirects=False) as answer,
        ):
            return await _body(answer) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


async def status_of(http: config.Http, *, is_of_scenes: bool = False) -> dict[str, Any] | None:
    """The status of the worker, or of the scenes worker. None: none answers. Raises
    `Fatal` if the worker wants another token.
    """
    url, part = url_of(http), "sites" if is_of_scenes else "problems"
    async with _session(http) as session:
        code, document = await _asked(session, f"{url}/api/status")
    if code == UNAUTHORIZED:
        message = (
            f"{url} wants another token than http.token: set it to the worker's. (Or the clocks of "
            "the two machines differ by more than five minutes.)"
        )
        raise usage(message)
    return document if isinstance(document.get(part), list) else None


async def way_of(http: config.Http, id: str, model: str, output_topic: str) -> ReportedWay | str:
    """The way of the object that the record `id` answers, as told by the worker that delivered the
    record. If no worker tells the way, returns a text that says why.
    """
    query = {"id": id, "model": model, "output": output_topic}
    try:
        urls = [url_of(http), *await _peers(http)]
    except Fatal as error:
        return str(error)
    some = asyncio.Semaphore(AT_A_TIME)
    ways: list[ReportedWay] = []
    codes: list[int] = []
    async with _session(http) as session, asyncio.TaskGroup() as tasks:

        async def ask(url: str) -> None:
            async with some:
                code, document = await _asked(session, f"{url}/api/way", query)
            try:
                ways.append(msgspec.convert(document, ReportedWay))
            except msgspec.ValidationError:
                codes.append(code)
                return
            for task in running:
                task.cancel()

        running = [tasks.create_task(ask(url)) for url in dict.fromkeys(urls)]
    return ways[0] if ways else _why_not(codes)


async def _peers(http: config.Http) -> list[str]:
    """The URLs of the peers whose names can be resolved. Raises `Fatal` for a wrong entry."""
    named = [address_of(peer, http.port or PORT) for peer in http.peers or ()]
    answers = await asyncio.gather(*map(numbers_of, named), return_exceptions=True)
    numbers = [
        each for answer in answers if not isinstance(answer, BaseException) for each in answer
    ]
    return [f"http://{each}" for each in numbers[:MOST_PEERS]]


def _why_not(codes: Sequence[int]) -> str:
    silent, refusing = codes.count(0), codes.count(UNAUTHORIZED)
    if silent == len(codes):
        return "no worker answers (http.port, http.peers)"
    whys = ["no worker that answered (http.port, http.peers) has delivered it lately"]
    if silent:
        whys.append(f"{silent} of {len(codes)} did not answer")
    if refusing:
        whys.append(f"{refusing} of {len(codes)} want another token than http.token")
    return "; ".join(whys)


def _session(http: config.Http) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=WAIT, middlewares=proving(http.token))


async def _asked(
    session: aiohttp.ClientSession, url: str, query: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Returns two things: the answer's status code, or 0 if no answer came; and the JSON object of
    its body, which is empty if the body is not a JSON object.
    """
    try:
        async with session.get(url, params=query, allow_redirects=False) as answer:
            document = msgspec.json.decode(await _body(answer))
            return answer.status, document if isinstance(document, dict) else {}
    except msgspec.DecodeError:
        return answer.status, {}
    except (aiohttp.ClientError, TimeoutError):
        return 0, {}


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Whoever listens there may send any number of bytes, so a body that is
    larger than a worker's raises `ClientPayloadError`.
    """
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"more than {MOST_BYTES} bytes")
    return bytes(body)


class Address(NamedTuple):
    """A port, with an IP address or with a name that may stand for many IP addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(text: str, port: int) -> Address:
    """Reads an entry of `http.peers`. If the entry has no port, `port` is used."""
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and not (parts.path or parts.query or parts.username):
            return Address(parts.hostname, parts.port or port)
    except ValueError:
        pass
    raise usage(
        f"http.peers: {text!r} is no address; write host:port, or the name of a headless service"
    )


async def numbers_of(named: Address) -> list[Address]:
    """The IP addresses that a name stands for. Raises `OSError` or `UnicodeError` if there are
    none.
    """
    async with asyncio.timeout(RESOLVE_S):
        entries = await asyncio.get_running_loop().getaddrinfo(
            named.host, named.port, type=socket.SOCK_STREAM
        )
    return [Address(str(where[0]), named.port) for *_, where in entries]
