"""The channels to one gRPC server, which share the calls, and end by age.

Rule: as for connections of our own (`http.connections`). gRPC sends all calls of a channel over one
connection for each address of the name, and a balancer gives all of them to one server. So the
calls go in turn over several channels. A channel is replaced when it is old. It is also replaced
when it is silent, with all that were not used since. A replaced channel is closed when its last
call has ended. Owner: the calls to one model.
"""

import asyncio
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc.aio

from penstock.adapters.http.connections import AGE_S, IDLE_S, OFTEN_S, SPREAD, is_address

OPTIONS: Final = (
    # Otherwise all channels to an address would share one connection.
    ("grpc.use_local_subchannel_pool", 1),
    # Each channel is connected to every address of the name, and its calls go to them in turn.
    ("grpc.lb_policy_name", "round_robin"),
    # After this time without a call the channel closes its connections.
    ("grpc.client_idle_timeout_ms", int(IDLE_S * 1000)),
    # gRPC asks the server for a sign of life while a call waits, and takes the connection for dead
    # after 9 s. It asks twice at most while nothing else is sent; the third time in five minutes
    # servers would hang up (grpc.http2.max_ping_strikes).
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 2),
)


class Channel:
    """`slowest_s`: how long the slowest answer took; None before the first answer."""

    def __init__(self, channel: grpc.aio.Channel, now_s: float) -> None:
        self.channel = channel
        self.used_s = now_s
        self.ends_s = now_s + AGE_S * random.uniform(2 / 3, 4 / 3)
        self.slowest_s: float | None = None
        self.is_replaced = False
        self._calls = 0

    @asynccontextmanager
    async def carrying(self) -> AsyncIterator[None]:
        """A block with a call."""
        now_s = asyncio.get_running_loop().time
        began_s, self._calls = now_s(), self._calls + 1
        try:
            yield
            self.slowest_s = max(now_s() - began_s, self.slowest_s or 0.0)
        finally:
            self._calls -= 1
            self.used_s = now_s()
            await self.close_if_over()

    async def close_if_over(self) -> None:
        if self.is_replaced and not self._calls:
            await self.channel.close()


class Channels:
    """`makes`: a function that makes a channel."""

    def __init__(self, host: str, port: int, makes: Callable[[], grpc.aio.Channel]) -> None:
        self._host = host
        self._port = port
        self._makes = makes
        # The one that was taken last is at the end.
        self._channels: deque[Channel] = deque()
        self._wanted = 1

    async def take(self) -> Channel:
        now_s = asyncio.get_running_loop().time()
        await self._replace(lambda one: now_s >= one.ends_s)
        is_often = bool(self._channels) and now_s - self._channels[0].used_s < OFTEN_S
        if not self._channels or (is_often and len(self._channels) < self._wanted):
            self._wanted = -(-SPREAD // await self._addresses())
            one = Channel(self._makes(), now_s)
        else:
            one = self._channels.popleft()
        self._channels.append(one)
        return one

    async def condemn(self, dead: Channel, asked_s: float) -> None:
        """Replace the channel, and all that may be dead like it: nothing was heard from them since
        it was asked.
        """
        await self._replace(lambda one: one is dead or one.used_s <= asked_s)

    async def aclose(self) -> None:
        channels, self._channels = self._channels, deque()
        for one in channels:
            await one.channel.close()

    async def _replace(self, is_over: Callable[[Channel], bool]) -> None:
        over = [one for one in self._channels if is_over(one)]
        for one in over:
            one.is_replaced = True
        self._channels = deque(one for one in self._channels if not one.is_replaced)
        for one in over:
            await one.close_if_over()

    async def _addresses(self) -> int:
        """How many there are; 1 if the name cannot be resolved, which gRPC itself reports."""
        if is_address(self._host):
            return 1
        loop = asyncio.get_running_loop()
        try:
            found: list[Any] = await loop.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
        except OSError:
            return 1
        return min(SPREAD, len({where[0] for *_, where in found}))
