"""A table of faults: each answer that a server, or a proxy before it, can give, and what the worker
makes of it. docs/models.md has the same table in words.

Rule: every case is bytes on a socket; nothing of HTTP is hidden by a server library.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.core.health.retries import MOST_ASKED_S, Backoff
from penstock.core.rows.payload import JsonRows
from penstock.errors import (
    Fatal,
    HungUp,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    WorkerDied,
)
from tests.adapters.model_servers.hurry import in_a_hurry

ROWS: Final = JsonRows.of([b"[1]", b"[2]"])
GOOD: Final = b'[{"a":1},{"a":2}]'
HTML: Final = b"<html><head><title>Sorry</title></head><body><h1>Sorry</h1></body></html>"

# What the worker does: the family of the error decides.
DOES: Final[dict[str, type[PenstockError]]] = {
    "again": Transient,
    "again, fewer at a time": Overloaded,
    "again, searched if it goes on": NoAnswer,
    "again at once, searched if it goes on": HungUp,
    "again, searched if it dies twice": WorkerDied,
    "searched, model_rejected": Rejected,
    "searched, model_mismatch": Poison,
    "smaller, too_large": Poison,
    "ends": Fatal,
}


class Case(NamedTuple):
    name: str
    raw: bytes
    does: str
    drips: bool = False
    stays: bool = False

    @property
    def takes_long(self) -> bool:
        return self.drips or self.stays


def said(
    status: int,
    body: bytes,
    *headers: bytes,
    length: bool = True,
    kind: bytes = b"application/json",
) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Type: " + kind, *headers]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def serve(kind: str, message: str, status: int) -> bytes:
    """A complaint as TorchServe words it."""
    body = b'{"code":%d,"type":"%b","message":"%b"}' % (status, kind.encode(), message.encode())
    return said(status, body, b"connection: close")


NO_WORKER = 'Model \\"rows\\" has no worker to serve inference request.'
TORCHSERVE = [
    Case("400 token", serve("InvalidKeyException", "Token Authorization failed.", 400), "ends"),
    Case("400 handler", said(400, b'{"error":"16 numbers"}'), "searched, model_rejected"),
    Case("404", serve("ModelNotFoundException", "Model not found: rows", 404), "ends"),
    Case("404 version", serve("ModelVersionNotFoundException", "Version 2", 404), "ends"),
    Case("405", serve("MethodNotAllowedException", "Requested method is not allowed", 405), "ends"),
    Case("413", said(413, b""), "smaller, too_large"),
    Case("500 raised", serve("InternalServerException", "what the handler said", 500),
         "searched, model_rejected"),
    Case("500 died", serve("InternalServerException", "Worker died.", 500),
         "again, searched if it dies twice"),
    Case("503 full", serve("ServiceUnavailableException", NO_WORKER, 503),
         "again, fewer at a time"),
    Case("503 raised", serve("InternalServerException", "Prediction failed", 503),
         "searched, model_rejected"),
    Case("503 mismatched", serve("InternalServerException", "number of batch response", 503),
         "searched, model_rejected"),
    Case("507 died", serve("InternalServerException", "Worker died.", 507),
         "again, searched if it dies twice"),
    Case("507 resources", serve("InternalServerException", "Out of resources", 507),
         "searched, model_rejected"),
]  # fmt: skip

# What stands before the server answers with a status and a page, nothing, or half a document.
BY_STATUS: Final = {
    302: "ends",
    400: "searched, model_rejected",
    401: "ends",
    403: "ends",
    404: "ends",
    405: "ends",
    408: "again",
    413: "smaller, too_large",
    422: "searched, model_rejected",
    429: "again, fewer at a time",
    500: "again",
    502: "again",
    503: "again, fewer at a time",
    504: "again",
    507: "again",
}
BODIES: Final = {
    "HTML": (HTML, b"text/html"),
    "empty": (b"", b"text/plain"),
    "truncated JSON": (b'{"code":503,"type":"Intern', b"application/json"),
    "JSON of another kind": (b'["no","object"]', b"application/json"),
    "wrong content type": (b'{"detail":"x"}', b"image/png"),
    "no text": (bytes(range(256)), b"application/octet-stream"),
}
FOREIGN = [
    Case(f"{status} {name}", said(status, body, kind=kind), does)
    for status, does in BY_STATUS.items()
    for name, (body, kind) in BODIES.items()
]

LOST = "again, searched if it goes on"
BROKEN = "again at once, searched if it goes on"
WHOLE = said(200, GOOD)
TRANSPORT = [
    *(Case(f"cut at {part}/10", WHOLE[: len(WHOLE) * part // 10], BROKEN) for part in range(10)),
    Case("silent", b"", LOST, stays=True),
    Case("drips", said(200, GOOD, b"Content-Length: 7000000", length=False), LOST, drips=True),
    Case("no HTTP", b"220 smtp ready\r\n", BROKEN),
    Case("two lengths that differ", said(200, GOOD, b"Content-Length: 4"), BROKEN),
    Case("a negative length", said(200, GOOD, b"Content-Length: -1", length=False), BROKEN),
    Case("a length that is a word", said(200, GOOD, b"Content-Length: all", length=False), BROKEN),
    Case("a length beyond the body", said(200, GOOD, b"Content-Length: 99", length=False), BROKEN),
    Case("a length before the end", said(200, GOOD, b"Content-Length: 4", length=False), BROKEN),
    Case("an endless head", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, BROKEN),
]  # fmt: skip

NONSENSE = [
    Case("one fewer", said(200, b"[1]"), "searched, model_mismatch"),
    Case("one more", said(200, b"[1,2,3]"), "searched, model_mismatch"),
    Case("null", said(200, b"null"), "searched, model_mismatch"),
    Case("empty", said(200, b""), "searched, model_rejected"),
    Case("HTML", said(200, HTML, kind=b"text/html"), "searched, model_rejected"),
]  # fmt: skip

FAULTS = [*TORCHSERVE, *FOREIGN, *TRANSPORT, *NONSENSE]

# Odd, and yet answers: the predictions as they are published.
FINE: Final[dict[str, tuple[bytes, list[bytes]]]] = {
    "no content type": (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(GOOD) + GOOD,
        [b'{"a":1}', b'{"a":2}'],
    ),
    "a wrong content type": (
        said(200, GOOD, kind=b"text/html"),
        [b'{"a":1}', b'{"a":2}'],
    ),
    "no length, until it closes": (
        said(200, GOOD, length=False),
        [b'{"a":1}', b'{"a":2}'],
    ),
    "chunks": (
        said(200, b"", b"Transfer-Encoding: chunked", length=False)
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(GOOD), GOOD),
        [b'{"a":1}', b'{"a":2}'],
    ),
    "null and NaN": (said(200, b"[null,NaN]"), [b"null", b"null"]),
    "a key twice": (said(200, b'[{"a":1,"a":3},{"a":2}]'), [b'{"a":1,"a":3}', b'{"a":2}']),
    "predictions twice": (
        said(200, b'{"predictions":[{"a":1},2],"predictions":[{"b":2},3]}'),
        [b'{"b":2}', b"3"],
    ),
}


@asynccontextmanager
async def server(case: Case) -> AsyncIterator[str]:
    """Before it keeps silent or drips it answers once, so that a connection is there."""
    served: set[asyncio.Task[None]] = set()
    has_answered = not case.takes_long

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            nonlocal has_answered
            await take(reader)
            if not has_answered:
                has_answered = True
                writer.write(WHOLE)
                await take(reader)
            writer.write(case.raw)
            await writer.drain()
            while case.drips:
                await asyncio.sleep(0.01)
                writer.write(b" ")
                await writer.drain()
            if case.stays:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        await asyncio.sleep(0)


async def take(reader: asyncio.StreamReader) -> None:
    """A whole request."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r")[0]))


async def ask(case: Case) -> list[bytes]:
    async with server(case) as url:
        model = TorchServeModel(msgspec.convert({"url": url}, config.Model))
        try:
            if case.takes_long:
                await model.predict([ROWS])
                with in_a_hurry(model._http, 0.1):
                    return list((await model.predict([ROWS])).values)
            return list((await model.predict([ROWS])).values)
        finally:
            await model.aclose()


def name_of(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", FAULTS, ids=name_of)
async def test_each_fault_is_told_by_what_the_worker_does(case: Case) -> None:
    with pytest.raises(PenstockError) as caught:
        await ask(case)
    assert type(caught.value) is DOES[case.does]
    if isinstance(caught.value, Poison):
        assert caught.value.code == case.does.split()[-1]
    if case in (*TORCHSERVE, *FOREIGN):
        assert "http://127.0.0.1" in str(caught.value)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", FINE)
async def test_what_is_odd_but_an_answer_is_an_answer(name: str) -> None:
    raw, values = FINE[name]
    assert await ask(Case(name, raw, "")) == values


DATE: Final = "Date: Sat, 21 Nov 2026 03:00:00 GMT"
WISHES: Final[dict[str, Callable[[float | None], bool]]] = {
    "Retry-After: 7": lambda wish: wish == 7.0,
    "Retry-After: 0": lambda wish: wish == 0.0,
    "Retry-After: -5": lambda wish: wish is None,
    "Retry-After: 1e9": lambda wish: wish is None,
    "Retry-After: soon": lambda wish: wish is None,
    f"Retry-After: {'9' * 400}": lambda wish: wish == 99_999_999.0,
    "Retry-After: \u0663": lambda wish: wish is None or wish <= 3,
    f"{DATE}\r\nRetry-After: Sat, 21 Nov 2026 03:00:09 GMT": lambda wish: wish == 9.0,
    f"{DATE}\r\nRetry-After: Sat, 21 Nov 2026 02:00:00 GMT": lambda wish: wish == 0.0,
    "Retry-After: 1.5": lambda wish: wish == 1.5,
    "Retry-After: 1.5.1": lambda wish: wish is None,
    "Retry-After: inf": lambda wish: wish is None,
    # The three forms of a date in RFC 9110, 5.6.7; without a Date our own clock counts.
    f"{DATE}\r\nRetry-After: Saturday, 21-Nov-26 03:00:09 GMT": lambda wish: wish == 9.0,
    f"{DATE}\r\nRetry-After: Sat Nov 21 03:00:09 2026": lambda wish: wish == 9.0,
    "Retry-After: Fri, 21 Nov 2025 03:00:09 GMT": lambda wish: wish == 0.0,
    "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT": lambda wish: wish is not None and wish > 1e9,
    "Date: yesterday\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT": (
        lambda wish: wish is not None and wish > 1e9
    ),
    f"Retry-After: Sat, 21 Nov {'9' * 20} 03:00:09 GMT": lambda wish: wish is None,
    f"Retry-After: Sat, 21 Nov 2026 03:00:09 +{'9' * 20}": lambda wish: wish is None,
    "Retry-After: 1\r\nRetry-After: 2": lambda wish: wish in (1.0, 2.0),
    "X: no wish": lambda wish: wish is None,
}


@pytest.mark.parametrize("header", WISHES)
async def test_a_wild_wish_to_be_left_alone_is_bounded(header: str) -> None:
    with pytest.raises(Overloaded) as caught:
        await ask(Case(header, said(503, b"", header.encode()), ""))
    wish_s = caught.value.retry_after_s
    assert WISHES[header](wish_s)
    delay_s = Backoff(0.05, 5.0).delay_s(1, 0.0, 0.5, wish_s)
    assert delay_s is not None
    assert delay_s <= MOST_ASKED_S


async def test_a_server_that_closes_after_accepting_gave_no_answer() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    model = TorchServeModel(msgspec.convert({"url": url}, config.Model))
    with pytest.raises(HungUp):
        await model.predict([ROWS])
    await model.aclose()
    listening.close()
