"""A worker that is asked to end while it starts ends well: there is nothing to drain yet."""

import asyncio
import os
import signal
import sys

import pytest

from tests.support.waiting import DEADLINE_S

# The discard port: nobody listens there.
NOBODY = "127.0.0.1:9"
# `python -m penstock`, which says when it has begun to care for signals, and whether a library was
# loaded by then. It says so itself, as who looks from outside may look too late.
PENSTOCK = """
import runpy, signal, sys

care_for, missing = signal.signal, {signal.SIGTERM, signal.SIGINT}

def noted(number, handler):
    former = care_for(number, handler)
    missing.discard(number)
    if not missing:
        signal.signal = care_for
        print("msgspec is loaded:", "msgspec" in sys.modules, file=sys.stderr)
    return former

signal.signal = noted
runpy.run_module("penstock", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "--processes", "2"),
        ("rekey",),
        ("scenes",),
        ("replay", "--since", "1h", "--to", "t"),
    ],
    ids=" ".join,
)
async def test_a_signal_at_the_start_ends_it_with_0(
    number: signal.Signals, arguments: tuple[str, ...]
) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PENSTOCK, *arguments,
        env={**os.environ, "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": NOBODY, "PENSTOCK_HTTP__PORT": "0"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert worker.stderr is not None
    cares = (await worker.stderr.readline()).decode()
    worker.send_signal(number)
    message = cares + (await worker.stderr.read()).decode()
    assert await worker.wait() == 0, message
    assert "Traceback" not in message
    assert cares == "msgspec is loaded: False\n", message


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "--dry-run", "3"), ("rekey",), ("watch",)], ids=" ".join
)
async def test_a_signal_while_kafka_does_not_answer_ends_it_with_0(
    arguments: tuple[str, ...],
) -> None:
    is_asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as broker:
        port = broker.sockets[0].getsockname()[1]
        service = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", *arguments),
            env={
                **os.environ,
                "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
                "PENSTOCK_KAFKA__REKEY": "keyed" if arguments == ("rekey",) else "",
                "PENSTOCK_OBJECTS__ANON": "true",
                "PENSTOCK_HTTP__PORT": "0",
            },
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            await is_asked.wait()
            service.send_signal(signal.SIGTERM)
            _, output = await service.communicate()
    assert service.returncode == 0, output.decode()
    assert b"Traceback" not in output
