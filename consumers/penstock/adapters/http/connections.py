"""Our own HTTP/1.1 connections on asyncio's transport. Each carries one request at a time, and
stays open for the next request. They save CPU: a POST and its answer cost a third of what they cost
with a general client.

Rule: a connection is used again only after an answer that was read whole. Every request ends: with
its answer, at its deadline, or with the end of the connection. Owner: the client of one host, which
lends a connection to one task at a time.
"""

import asyncio
import ipaddress
import math
import ssl
from collections import deque
from typing import Final, cast

from penstock.adapters.http.answer_reader import Answer, AnswerReader, TooLong, Unusable

MAX_IDLE: Final = 64
# A connection that was idle for longer than this is not used again: servers close idle connections
# after some seconds, and a request on a closed connection must be sent again.
IDLE_S: Final = 8.0
# A body larger than this is sent in pieces, so that the event loop can do other work between them.
PIECE_BYTES: Final = 256 << 10
# If a name has several addresses, the next one is tried after this time (RFC 8305, as browsers do).
# If the name is itself an address, no such delay is given. The reason: with a delay, asyncio starts
# a race between addresses, and if a race with only one address is cancelled, the socket stays open
# (Python 3.11 to 3.13).
NEXT_ADDRESS_S: Final = 0.25


class Connection(asyncio.Protocol):
    """Owner: the task that took the connection, until the task gives it back. The connection stores
    its event loop, because each call of `get_running_loop` costs a `getpid` in Python 3.11.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_reusable = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._used_s = -math.inf
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._reader: AnswerReader | None = None
        self._unsent = memoryview(b"")
        self._is_paused = False
        self._silence_s = math.inf
        self._heard_s = 0.0
        self._due_s = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def ask(
        self,
        request: bytes,
        reader: AnswerReader,
        *,
        most_s: float,
        silence_s: float = math.inf,
        body: bytes = b"",
    ) -> Answer:
        """Send a request, and return the answer that `reader` finds. `most_s`: how long the request
        and the answer may take together. `silence_s`: how long the server may send nothing. Raises
        `TimeoutError`, other kinds of `OSError`, `Unusable`, `TooLong`.
        """
        transport, loop = self._transport, self._loop
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._reader, self.is_reusable = reader, False
        waiter: asyncio.Future[Answer] = loop.create_future()
        self._waiter = waiter
        self._heard_s = loop.time()
        self._silence_s, self._due_s = silence_s, self._heard_s + most_s
        self._keep_watch()
        if len(body) <= PIECE_BYTES:
            transport.write(request + body if body else request)
        else:
            transport.write(request)
            self._unsent = memoryview(body)
            self._send_on()
        try:
            return await waiter
        finally:
            self._waiter = self._reader = None
            self._used_s = loop.time()
            if not self.is_reusable:
                self.close()

    @property
    def rested_s(self) -> float:
        """The seconds since the connection was last used."""
        return self._loop.time() - self._used_s

    @property
    def is_fresh(self) -> bool:
        """True if another request may be sent on the connection."""
        return self.is_reusable and self.rested_s < IDLE_S

    @property
    def _ends_s(self) -> float:
        return min(self._heard_s + self._silence_s, self._due_s)

    def _keep_watch(self) -> None:
        """Set the timer. There is one timer for each connection, not one for each request. If the
        timer rings too early, it is set again.
        """
        ends_s = self._ends_s
        if self._watch is not None:
            if self._watch.when() <= ends_s:
                return
            self._watch.cancel()
        self._watch = self._loop.call_at(ends_s, self._check_time)

    def _check_time(self) -> None:
        self._watch = None
        if self._waiter is not None and not self._waiter.done():
            if self._loop.time() >= self._ends_s:
                self._fail(TimeoutError())
            else:
                self._keep_watch()

    def close(self) -> None:
        self.is_reusable = False
        self._unsent = memoryview(b"")
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        reader = self._reader
        answer = reader.end() if reader is not None and exc is None else None
        self.is_reusable = False
        if answer is not None:
            self._done(answer)
        else:
            where = " within its answer" if reader is not None and reader.has_begun else ""
            self._fail(exc or ConnectionResetError(f"the server hung up{where}"))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_on()

    def _send_on(self) -> None:
        while self._unsent and not self._is_paused and self._transport is not None:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            self._transport.write(piece)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            # These bytes came without a request. If the connection stayed open, the next request
            # could take them for its answer.
            self.close()
            return
        self._heard_s = self._loop.time()
        try:
            answer = reader.feed(data)
        except (Unusable, TooLong) as error:
            self._fail(error)
            return
        if answer is not None:
            self.is_reusable = reader.keeps and not self._unsent
            self._done(answer)

    def _done(self, answer: Answer) -> None:
        self._reader = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self._reader = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def is_address(name: str) -> bool:
    """True for an IPv4 or IPv6 address, false for a name that must be looked up."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Host:
    """The connections to one host; idle ones are kept for the next request. The caller limits how
    many connections are lent at a time.
    """

    def __init__(self, name: str, port: int, secure: ssl.SSLContext | None) -> None:
        self._name = name
        self._port = port
        self._secure = secure
        self._next_address_s = None if is_address(name) else NEXT_ADDRESS_S
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()

    def take(self) -> Connection | None:
        """Take the idle connection that was used last, because the server is the least likely to
        have closed it. None: no idle connection can be used.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        return None

    async def connect(self, most_s: float) -> Connection:
        """Open a new connection. Raises `TimeoutError` and other kinds of `OSError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(most_s):
            _, connection = await loop.create_connection(
                lambda: Connection(loop),
                self._name,
                self._port,
                ssl=self._secure,
                server_hostname=self._name.rstrip(".") if self._secure else None,
                happy_eyeballs_delay=self._next_address_s,
            )
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def give(self, connection: Connection) -> None:
        """Give a connection back after an answer. It is kept if it may be used again."""
        if connection.is_reusable and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._idle.clear()
        for connection in self._open:
            connection.close()

    async def aclose(self) -> None:
        """Returns when the sockets are closed."""
        self.close()
        if self._open:
            await asyncio.wait([connection.closed for connection in self._open])
