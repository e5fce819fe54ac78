"""Connections of our own: what a task that is cancelled leaves behind."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator

import pytest

from penstock.adapters.http.connections import Host


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server that hangs up as soon as it is called."""

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("turns", range(8))
async def test_a_connect_that_is_cancelled_leaves_no_socket_open(port: int, turns: int) -> None:
    host = Host("127.0.0.1", port, None)
    connecting = asyncio.create_task(host.connect(5.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait([connecting])
    if not connecting.cancelled():
        connecting.result().close()
    await host.aclose()
    del connecting
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gc.collect()
    ours = f"raddr=('127.0.0.1', {port})"
    assert [one for one in said if ours in str(one.message)] == []
