"""Our own HTTP/1.1 connections on asyncio's transport, one request at a time. A POST and its answer
cost a third of the CPU that they cost with a general client.

Rule: a connection is used again only after an answer that was read whole. Every request ends: with
its answer, at its deadline, or with the end of the connection. Requests are spread over all
addresses of a name, and, because one may be a balancer, over more connections than there are
requests at a time; none lives for long, so that a server which joins gets its share. The kernel
finds an end that is gone (`kept_alive`), but a proxy in the middle answers for it: so the clients
also bound the silence themselves.
"""

import asyncio
import ipaddress
import math
import random
import socket
import ssl
from collections import Counter, deque
from typing import Final, cast

from penstock.adapters.http.answer_reader import Answer, AnswerReader, TooLong, Unusable

# The first question after 5 s of silence, then one every 2 s. After 9 s without an answer the
# connection is given up. Load balancers take such a question for traffic. What was sent may wait
# for longer: a server that works on one call (`model.timeout_ms`, 30 s) may read no other
# meanwhile, and Linux counts a window that stays closed as silence, too (tcp(7)).
_OPTIONS: Final = (
    ("TCP_KEEPIDLE", 5),
    ("TCP_KEEPALIVE", 5),  # macOS's name of TCP_KEEPIDLE
    ("TCP_KEEPINTVL", 2),
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 35_000),
)


def keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


MAX_IDLE: Final = 64
# A connection that was idle for longer than this is not used again: servers close idle connections
# after some seconds, and a request on a closed connection must be sent again. Ways forget idle
# connections, too, but later.
IDLE_S: Final = 8.0
# A connection ends at about this age, while it is idle. The age differs by a third, so that not all
# are made anew at once. After 90 s a server that has joined has its share.
AGE_S: Final = 60.0
# So many connections are open to a host that is asked often: with RR as with the fewest connections
# a balancer gives each of five servers 0.6 to 1.3 of its share with 16, and 0 to 1.8 with 4.
SPREAD: Final = 16
# A host is asked often if even the connection that rests longest was used within this time. So a
# connection carries a hundred requests at least, and the time to make it does not show.
OFTEN_S: Final = 0.5
# A connection that was used before and brings nothing for this time may be dead, because a way that
# forgets a connection tells nobody. Its request is sent again on a new one.
SILENCE_S: Final = 4.0
# A service that was slow of late has this many times as long as it took to begin its answer.
SILENT_TIMES: Final = 4
# Of the time that the slowest answer took, this share is forgotten with each answer that follows.
FORGOTTEN_SHARE: Final = 0.01
# The addresses of a name are asked for again after this time: S3 gives them for 5 s.
ADDRESSES_S: Final = 5.0
# How long the chosen address may take to accept a connection. Then any address is tried.
CHOSEN_S: Final = 2.0
# An answer of which more than this came is large (`AnswerRoom`).
LARGE_BYTES: Final = 64 << 10
# A body larger than this is sent in pieces, so that the event loop can do other work between them.
PIECE_BYTES: Final = 256 << 10
# If a name has several addresses, the next one is tried after this time (RFC 8305, as browsers do).
# If the name is itself an address, no such delay is given. The reason: with a delay, asyncio starts
# a race between addresses, and if a race with only one address is cancelled, the socket stays open
# (Python 3.11 to 3.13).
NEXT_ADDRESS_S: Final = 0.25


class Connection(asyncio.Protocol):
    """Owner: the task that took the connection, until the task gives it back. `asked_s`, `heard_s`:
    when the last request was sent, and when anything was last heard. The connection stores its
    event loop, because each call of `get_running_loop` costs a `getpid` in Python 3.11.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, room: "AnswerRoom | None" = None) -> None:
        self.is_reusable = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self.loop = loop
        self.asked_s = self.heard_s = -math.inf
        # How long the last answer took to begin.
        self.began_after_s = 0.0
        self._old_s = loop.time() + AGE_S * random.uniform(2 / 3, 4 / 3)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._reader: AnswerReader | None = None
        self._room = room
        self._read_bytes = 0  # of an answer of which more is to come
        self._unsent = memoryview(b"")
        self._is_paused = False
        self._silence_s = math.inf
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
        transport, loop = self._transport, self.loop
        self.asked_s = now_s = loop.time()
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._reader, self.is_reusable = reader, False
        waiter: asyncio.Future[Answer] = loop.create_future()
        self._waiter = waiter
        self._read_bytes = 0
        self.heard_s = now_s
        self._silence_s, self._due_s = silence_s, now_s + most_s
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
            if self._room is not None and self._read_bytes > LARGE_BYTES:
                self._room.ended(self)
            if not self.is_reusable:
                self.close()

    def is_fresh(self, now_s: float) -> bool:
        """True if another request may be sent on the connection."""
        return self.is_reusable and now_s - self.heard_s < IDLE_S and now_s < self._old_s

    @property
    def _ends_s(self) -> float:
        return min(self.heard_s + self._silence_s, self._due_s)

    def _keep_watch(self) -> None:
        """Set the timer. There is one timer for each connection, not one for each request. If the
        timer rings too early, it is set again.
        """
        ends_s = self._ends_s
        if self._watch is not None:
            if self._watch.when() <= ends_s:
                return
            self._watch.cancel()
        self._watch = self.loop.call_at(ends_s, self._check_time)

    def _check_time(self) -> None:
        self._watch = None
        if self._waiter is not None and not self._waiter.done():
            if self.loop.time() >= self._ends_s:
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
        if (wire := transport.get_extra_info("socket")) is not None:
            keep_alive(wire)

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
        now_s = self.loop.time()
        if self.heard_s == self.asked_s:
            self.began_after_s = now_s - self.asked_s
        self.heard_s = now_s
        try:
            answer = reader.feed(data)
        except (Unusable, TooLong) as error:
            self._fail(error)
            return
        if answer is not None:
            self.is_reusable = reader.keeps and not self._unsent
            self._done(answer)
        elif self._room is not None:
            self._read_bytes += len(data)
            if self._read_bytes > LARGE_BYTES:
                self._room.grown(self, self._read_bytes)

    def pause_reading(self) -> None:
        """From now on only the deadline ends the request: the silence is ours."""
        self._silence_s = math.inf
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def _done(self, answer: Answer) -> None:
        self._reader = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self._reader = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class AnswerRoom:
    """The memory for large answers that are read at the same time, from one server. Beyond
    `most_bytes` only the one that became large first is read on, then the next one. So at most
    `most_bytes`, one answer and a piece of each other one are held.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._of_each: dict[Connection, int] = {}

    def grown(self, connection: Connection, read_bytes: int) -> None:
        """`read_bytes`: how much of its answer was read; there is more."""
        self._held_bytes += read_bytes - self._of_each.get(connection, 0)
        self._of_each[connection] = read_bytes
        is_first = next(iter(self._of_each)) is connection
        if self._held_bytes > self._most_bytes and not is_first:
            connection.pause_reading()

    def ended(self, connection: Connection) -> None:
        """The answer is read, or is given up."""
        self._held_bytes -= self._of_each.pop(connection)
        for number, other in enumerate(self._of_each):
            if number == 0 or self._held_bytes <= self._most_bytes:
                other.resume_reading()


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

    def __init__(
        self,
        name: str,
        port: int,
        secure: ssl.SSLContext | None,
        spread: int = SPREAD,
        often_s: float = OFTEN_S,
        room: AnswerRoom | None = None,
    ) -> None:
        self._name = name
        self._port = port
        self._secure = secure
        self._spread = spread
        self._often_s = often_s
        self._room = room
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._addresses = _Addresses(name, port)
        self._slowest_s = 0.0
        # The longest time without an answer of late, and until when it is remembered.
        self._rest_s, self._rest_until_s = 0.0, -math.inf

    @property
    def silence_s(self) -> float:
        """How long a connection that was used before may bring nothing."""
        return max(SILENCE_S, SILENT_TIMES * self._slowest_s)

    def take(self) -> Connection | None:
        """Take the connection that has been idle for longest, so that all servers get requests.
        None: no idle connection can be used, or there should be more connections.
        """
        now_s = self._idle[0].loop.time() if self._idle else 0.0
        is_doubted = bool(self._idle) and self._rests_unusually(now_s)
        while self._idle:
            connection = self._idle[0]
            if is_doubted or not connection.is_fresh(now_s):
                self._idle.popleft().close()
                continue
            is_often_asked = now_s - connection.heard_s < self._often_s
            if is_often_asked and len(self._open) < self._wanted:
                return None
            return self._idle.popleft()
        return None

    def _rests_unusually(self, now_s: float) -> bool:
        """Was there no answer for so much longer than lately that the way may have forgotten all
        connections? Work may have stood still because another service's connections are dead, too.
        """
        rest_s, usual_s = now_s - self._idle[-1].heard_s, self._rest_s
        if rest_s >= usual_s or now_s >= self._rest_until_s:
            self._rest_s, self._rest_until_s = rest_s, now_s + AGE_S
        return rest_s >= max(SILENCE_S, 2 * usual_s)

    @property
    def _wanted(self) -> int:
        """How many connections should be open: the same number to each address."""
        addresses = self._addresses.count
        return -(-self._spread // addresses) * addresses

    async def connect(self, most_s: float) -> Connection:
        """Open a new connection, to the address that has the fewest. Raises `TimeoutError` and
        other kinds of `OSError`.
        """
        async with asyncio.timeout(most_s):
            address = await self._addresses.least_used()
            if address is None:
                return await self._connect(self._name)
            # It counts from now on, so that connections which are made at once differ in it.
            self._addresses.used[address] += 1
            try:
                async with asyncio.timeout(CHOSEN_S):
                    return await self._connect(address)
            except OSError:
                self._addresses.failed(address)
            finally:
                self._addresses.unused(address)
            return await self._connect(self._name)

    async def _connect(self, where: str) -> Connection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: Connection(loop, self._room),
            where,
            self._port,
            ssl=self._secure,
            server_hostname=self._name.rstrip(".") if self._secure else None,
            happy_eyeballs_delay=None if is_address(where) else NEXT_ADDRESS_S,
        )
        address: str = transport.get_extra_info("peername", (where,))[0]
        self._addresses.used[address] += 1
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._ended(connection, address))
        return connection

    def _ended(self, connection: Connection, address: str) -> None:
        self._open.discard(connection)
        self._addresses.unused(address)

    def give(self, connection: Connection) -> None:
        """Give a connection back after an answer. It is kept if it may be used again."""
        self._slowest_s = max(connection.began_after_s, self._slowest_s * (1 - FORGOTTEN_SHARE))
        if connection.is_fresh(connection.heard_s) and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def condemn(self, dead: Connection) -> None:
        """Close the idle connections that may be dead like this one: nothing was heard from them
        since it was asked.
        """
        rest = deque[Connection]()
        for connection in self._idle:
            if connection.heard_s <= dead.asked_s:
                connection.close()
            else:
                rest.append(connection)
        self._idle = rest

    def close(self) -> None:
        self._idle.clear()
        for connection in self._open:
            connection.close()

    async def aclose(self) -> None:
        """Returns when the sockets are closed."""
        self.close()
        if self._open:
            await asyncio.wait([connection.closed for connection in self._open])


class _Addresses:
    """The addresses of a host, and how many connections each has (`used`)."""

    def __init__(self, name: str, port: int) -> None:
        self.used: Counter[str] = Counter()
        self._name = name
        self._port = port
        self._is_name = not is_address(name)
        self._known: list[str] = []
        self._asked_s = -math.inf
        # Until when an address that accepted no connection is left out.
        self._away_s: dict[str, float] = {}

    @property
    def count(self) -> int:
        return max(1, len(self._known))

    async def least_used(self) -> str | None:
        """None: there is nothing to choose. Raises `OSError` if the name cannot be resolved."""
        loop = asyncio.get_running_loop()
        if self._is_name and loop.time() - self._asked_s >= ADDRESSES_S:
            entries = await loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
            self._asked_s = now_s = loop.time()
            self._away_s = {address: end for address, end in self._away_s.items() if end > now_s}
            every = dict.fromkeys(str(where[0]) for *_, where in entries)
            self._known = [address for address in every if address not in self._away_s]
        if len(self._known) < 2:
            return None
        return min(self._known, key=self.used.__getitem__)

    def unused(self, address: str) -> None:
        self.used[address] -= 1
        if not self.used[address]:
            del self.used[address]

    def failed(self, address: str) -> None:
        self._away_s[address] = asyncio.get_running_loop().time() + AGE_S
        self._known = [known for known in self._known if known != address]
