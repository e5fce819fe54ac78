"""Finds out that a connection to a broker is dead, for every client of aiokafka in the process.

Rule: a dead connection costs one wait of `SILENCE_S` (aiokafka would wait for 40 s, and then meet
the next one). A connection that owes an answer and is silent for too long is closed, and so are all
others of its event loop that have been idle for as long, because they share its way.

A broker may also be slow, and would be slow again: after each silence the next request of this kind
to this broker may take twice as long. If the silent connection had been in use, no way has
forgotten it; then quick answers change nothing for `KEPT_S`. Requests that wait for other members
or the controller have aiokafka's own limit. The time for which a broker leaves a connection unread,
because of a quota, does not count.

Private parts of aiokafka 0.14's connection; replaces the function by which its clients connect.
"""

import asyncio
import logging
import socket
import struct
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from aiokafka import client
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import RequestTimedOutError

from penstock.adapters.http.connections import keep_alive
from penstock.adapters.kafka.inside.authentication import AuthenticatedConnection

log = logging.getLogger(__name__)

# A healthy broker answers within milliseconds. A member that is not heard for `kafka.session_ms`
# (6 s at least) is expelled, so this time must leave it time for a heartbeat by a new connection.
SILENCE_S: Final = 4.0
# How long a new connection may take, with TLS and the password. Java's clients have the same
# (socket.connection.setup.timeout.ms).
CONNECT_S: Final = 10.0
# A connection that was heard within this time before it was asked was not forgotten for its
# idleness.
IN_USE_S: Final = 10.0
# How long it is remembered that a broker was slow. One that is slow less often costs `SILENCE_S`.
KEPT_S: Final = 60.0
# JoinGroup and SyncGroup, and what the controller does: topics, partitions, records, groups.
_UNBOUNDED: Final = frozenset({11, 14, 19, 20, 21, 33, 37, 42, 44})


class _Ways:
    """What is known about the connections of an event loop. `silence_s`: by the broker's address
    and the kind of the request, how long an answer may take, if that is not `SILENCE_S`; and until
    when quick answers do not change it.
    """

    def __init__(self) -> None:
        self.connections: WeakSet[_Connection] = WeakSet()
        self.silence_s: dict[tuple[str, int, int], tuple[float, float]] = {}


# By their event loop, because Faust has clients in two threads.
_ways: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ways] = WeakKeyDictionary()


class _Connection(AuthenticatedConnection):
    def __init__(self, *where: Any, **options: Any) -> None:
        super().__init__(*where, **options)
        self._ways = _ways.setdefault(self._loop, _Ways())
        self._is_watched = False
        self._watch: asyncio.TimerHandle | None = None
        # When the last answer came; since when one is owed, if none came since; and until when the
        # broker leaves the connection unread, as it said.
        self._heard_s = self._asked_s = self._unread_s = self._loop.time()
        # How long the oldest request may take, as it was when its answer began to be owed.
        self._patience_s = SILENCE_S
        self._arrived_bytes = 0

    async def connect(self) -> Any:
        async with asyncio.timeout(CONNECT_S):
            ends = await super().connect()
        keep_alive(self._writer.get_extra_info("socket"))
        self._ways.connections.add(self)
        self._is_watched = True
        return ends

    def send(self, request: Any, expect_response: bool = True) -> Any:
        is_first = not self._requests
        if self._renewal is None:  # nothing holds it back, so one call less for each request
            answer = AIOKafkaConnection.send(self, request, expect_response)
        else:
            answer = super().send(request, expect_response)
        if is_first and self._requests and self._is_watched:
            self._asked_s = self._loop.time()
            self._patience_s = self._may_take_s(self._requests[0][1])
            if self._watch is None:
                self._watch = self._loop.call_later(SILENCE_S, self._look)
        return answer

    def _handle_frame(self, resp: bytes) -> None:
        _, request, answer = self._requests[0]
        owed_since_s = self._owed_since_s
        super()._handle_frame(resp)
        self._heard_s, self._arrived_bytes = self._loop.time(), 0
        if not self._is_watched:
            return
        if self._requests:
            self._patience_s = self._may_take_s(self._requests[0][1])
        if answer.cancelled() or answer.exception():
            return
        throttled_ms = getattr(answer.result(), "throttle_time_ms", 0)
        if throttled_ms:
            self._unread_s = self._heard_s + throttled_ms / 1000
        self._learn(request, self._heard_s - owed_since_s, is_slow=True)

    @property
    def _owed_since_s(self) -> float:
        """A broker handles the requests of a connection one by one, so the oldest one counts."""
        since_s: float = max(self._heard_s, self._asked_s, self._unread_s)
        return since_s

    def _look(self) -> None:
        self._watch = None
        if not self._requests:
            return
        request, since_s, now_s = self._requests[0][1], self._owed_since_s, self._loop.time()
        left_s = since_s + self._patience_s - now_s
        # A long answer arrives for seconds.
        before_bytes, self._arrived_bytes = self._arrived_bytes, len(self._reader._buffer)
        if self._arrived_bytes > before_bytes:
            left_s = max(left_s, SILENCE_S)
        if left_s > 0:
            self._watch = self._loop.call_later(min(left_s, SILENCE_S), self._look)
        else:
            is_slow = self._asked_s - self._heard_s < IN_USE_S
            self._learn(request, now_s - since_s, is_slow=is_slow)
            self._condemn(since_s)

    def _may_take_s(self, request: Any) -> float:
        if request.API_KEY in _UNBOUNDED:
            return float(self._request_timeout)
        most_s, _ = self._ways.silence_s.get(self._kind(request), (SILENCE_S, 0.0))
        return most_s + _waits_s(request)

    def _learn(self, request: Any, took_s: float, *, is_slow: bool) -> None:
        """`is_slow`: False if the connection may have been forgotten."""
        most_s, learned = 2 * (took_s - _waits_s(request)), self._ways.silence_s
        if most_s <= SILENCE_S and not learned:
            return
        kind, now_s = self._kind(request), self._loop.time()
        before_s, until_s = learned.get(kind, (0.0, 0.0))
        if most_s > SILENCE_S:
            if now_s < until_s:
                most_s = max(most_s, before_s)
            until_s = now_s + KEPT_S if is_slow else max(now_s, until_s)
            learned[kind] = min(most_s, self._request_timeout), until_s
        elif now_s >= until_s:
            learned.pop(kind, None)

    def _kind(self, request: Any) -> tuple[str, int, int]:
        return self.host, self.port, request.API_KEY

    def _condemn(self, since_s: float) -> None:
        sisters = [
            connection for connection in self._ways.connections if connection.rests_since(since_s)
        ]
        log.warning(
            "the connection to the broker %s:%d is given up: no answer for %.0f s; so are %d that "
            "were idle for as long",
            *(self.host, self.port, self._loop.time() - since_s, len(sisters)),
        )
        # With this error aiokafka asks again. It takes a broken connection for lasting in places.
        # At a bare `TimeoutError` its client would look for this connection, which another request
        # may have replaced already, and fail for good if it is gone.
        for _, _, answer in self._requests:
            if not answer.done():
                answer.set_exception(RequestTimedOutError())
        self._reset()
        self.close(reason=CloseReason.CONNECTION_TIMEOUT)
        for sister in sisters:
            sister.close(reason=CloseReason.IDLE_DROP)

    def _reset(self) -> None:
        """End the connection so that the kernel sends nothing of it any more. A request that
        arrives late would be carried out behind its repetition: the end of a transaction would
        then commit half of the next one.
        """
        if self._writer is None:
            return
        transport = self._writer.transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    def rests_since(self, when_s: float) -> bool:
        return self.connected() and not self._requests and self._heard_s <= when_s

    def close(self, reason: Any = None, exc: Any = None) -> Any:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        return super().close(reason, exc)


def _waits_s(request: Any) -> float:
    """How long the broker may wait for records before it answers."""
    return getattr(request, "max_wait_time", 0) / 1000


async def _create_conn(host: str, port: int, **options: Any) -> _Connection:
    connection = _Connection(host, port, **options)
    await connection.connect()
    return connection


def watch_connections() -> None:
    """Call this before a client of aiokafka is made."""
    client.create_conn = _create_conn
