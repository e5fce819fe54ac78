"""Sends a request to a model server and reads the answer; both are bytes and headers.

Rule: a request is sent once, with one exception. If a request went over a connection that had been
idle, and this connection was closed before a byte of the answer came, the request is sent again.
The reason: the server had only closed an idle connection, and this says nothing about the server's
health or the rows. The exchange owns the connections to one server; the caller limits how many
requests are open at a time.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.adapters.http.answer_reader import Answer, AnswerReader, wanting
from penstock.adapters.http.certificates import untrusted
from penstock.adapters.http.connections import Connection, Host
from penstock.adapters.model_servers.refusals import excerpt
from penstock.ports import outgoing_traceparent

# A server that accepts no connection within this time counts as unavailable.
CONNECT_S: Final = 5.0
# Servers close idle connections after two seconds (gunicorn), five (uvicorn) or more. So if a
# connection was idle for less than `RESTED_S` and then breaks during a request, the request is the
# cause. Such a request is not sent again.
RESTED_S: Final = 1.0
# An answer may have at most this many bytes: ten times TorchServe's default max_response_size.
MOST_ANSWER_BYTES: Final = 64 << 20
# How many bytes of an error answer are read: more than a person reads.
MOST_COMPLAINT_BYTES: Final = 1 << 16

# For each header that is read from answers: its name in lower case, and its name in
# `Reply.headers`.
HEADERS: Final = {
    name.lower().encode(): name
    for name in ("Retry-After", "Date", "Inference-Header-Content-Length")
}
_FIELDS: Final = wanting(*HEADERS.values())
# How many bytes of a request's body an error shows, so that a person finds the row at fault.
SHOWN_BYTES: Final = 200


class Request(NamedTuple):
    """A body and the headers that say what it is."""

    body: bytes
    headers: Mapping[str, str]

    def shown(self, rows: int) -> str:
        """Shows a person what was sent: how many rows, in which form, and how the body begins."""
        form = self.headers.get("Content-Type", "no Content-Type")
        begin = excerpt(self.body[:SHOWN_BYTES])
        return f"{rows} row{'s' * (rows != 1)} as {form}, {len(self.body)} bytes: {begin}"


class Reply(NamedTuple):
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotConnected(Exception):
    """No connection could be made, so nothing was sent."""


class Exchange:
    """Any number of tasks may call `ask` at the same time."""

    def __init__(
        self, name: str, port: int, secure: ssl.SSLContext | None, *, rested_s: float = RESTED_S
    ) -> None:
        self._host = Host(name, port, secure)
        self._rested_s = rested_s

    async def ask(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Raises `NotConnected`, the errors of `Connection.ask`, and `Fatal` if the server's
        certificate is not trusted.
        """
        connection = self._host.take()
        if connection is None:
            return await self._ask_anew(head, body, timeout_s)
        is_rested = connection.rested_s >= self._rested_s
        reader = _reader()
        try:
            return await self._ask(connection, reader, head, body, timeout_s)
        except ConnectionError as lost:
            if not is_rested or reader.has_begun:
                raise
            try:
                return await self._ask_anew(head, body, timeout_s)
            except NotConnected:
                # The server may have received the first request before the connection broke. So the
                # error of the first request is raised: `NotConnected` would promise that nothing
                # was sent.
                raise lost from None

    async def aclose(self) -> None:
        """Returns when the sockets are closed."""
        await self._host.aclose()

    async def _ask_anew(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        connection = await self._connect(min(CONNECT_S, timeout_s))
        left_s = timeout_s - (loop.time() - began_s)
        return await self._ask(connection, _reader(), head, body, left_s)

    async def _ask(
        self, connection: Connection, reader: AnswerReader, head: bytes, body: bytes, most_s: float
    ) -> Answer:
        answer = await connection.ask(head, reader, body=body, most_s=most_s)
        self._host.give(connection)
        return answer

    async def _connect(self, most_s: float) -> Connection:
        try:
            return await self._host.connect(most_s)
        except TimeoutError:
            raise NotConnected(f"no connection within {most_s:g} s") from None
        except OSError as error:
            if untrusting := untrusted(str(error), "model.ssl_cafile"):
                raise untrusting from None
            raise NotConnected(f"{type(error).__name__}: {error}") from None


def _reader() -> AnswerReader:
    return AnswerReader(_FIELDS, MOST_ANSWER_BYTES, MOST_COMPLAINT_BYTES)


def rest_of_head(method: str, request: Request) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in request.headers.items()]
    if (traceparent := outgoing_traceparent.get()) is not None:
        lines.append(f"traceparent: {traceparent}\r\n")
    if request.body or method != "GET":
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode()


def reply_of(answer: Answer) -> Reply:
    """Make a `Reply` from the answer. If a header came twice, its first value counts."""
    fields = answer.fields
    headers = {
        shown: fields[name].partition(b"\n")[0].decode("latin-1")
        for name, shown in HEADERS.items()
        if name in fields
    }
    return Reply(answer.status, headers, answer.body)
