"""How calls are spread over channels, and when a channel is replaced."""

import asyncio
from typing import Any, cast

from penstock.adapters.http.connections import AGE_S, SPREAD
from penstock.adapters.model_servers.oip.grpc_calls import Channels
from penstock.tools.simulation.virtual_time import virtual_time


class Line:
    def __init__(self) -> None:
        self.calls = 0
        self.under_way = 0
        self.is_closed = False

    async def close(self) -> None:
        assert not self.under_way, "a call was cut off"
        self.is_closed = True


class Server:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.channels = Channels("127.0.0.1", 1, cast("Any", self._make))

    def _make(self) -> Line:
        self.lines.append(Line())
        return self.lines[-1]

    async def call(self, took_s: float = 0.01) -> None:
        channel = await self.channels.take()
        line = cast("Any", channel.channel)
        async with channel.carrying():
            line.calls += 1
            line.under_way += 1
            await asyncio.sleep(took_s)
            line.under_way -= 1


@virtual_time
async def test_calls_that_follow_each_other_go_over_all_channels_in_turn() -> None:
    server = Server()
    for _ in range(10 * SPREAD):
        await server.call()
    assert [line.calls for line in server.lines] == [10] * SPREAD


@virtual_time
async def test_rare_calls_have_one_channel() -> None:
    server = Server()
    for _ in range(10):
        await server.call()
        await asyncio.sleep(1)
    assert len(server.lines) == 1
    await server.channels.aclose()
    assert server.lines[0].is_closed


@virtual_time
async def test_an_old_channel_is_closed_when_its_last_call_has_ended() -> None:
    server = Server()
    long = asyncio.create_task(server.call(2 * AGE_S))
    for _ in range(int(4 / 3 * AGE_S) + 2):
        await asyncio.sleep(1)
        await server.call()
    assert not server.lines[0].is_closed
    await long
    assert server.lines[0].is_closed
    assert any(not line.is_closed for line in server.lines)


@virtual_time
async def test_a_silent_channel_goes_with_those_that_were_not_used_since() -> None:
    server = Server()
    for _ in range(3):
        await server.call()
    dead = await server.channels.take()
    asked_s = asyncio.get_running_loop().time()
    await asyncio.sleep(4)
    await server.call()
    await server.channels.condemn(dead, asked_s)
    alive = [line for line in server.lines if not line.is_closed]
    assert len(alive) == 1
    assert alive[0].calls > 0
