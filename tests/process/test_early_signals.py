"""A worker that is asked to end while it starts ends well: there is nothing to drain yet."""

import asyncio
import os
import signal
import sys

import pytest

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
    [("run",), ("run", "--processes", "2"), ("scenes",), ("replay", "--since", "1h", "--to", "t")],
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
    said = cares + (await worker.stderr.read()).decode()
    assert await worker.wait() == 0, said
    assert "Traceback" not in said
    assert cares == "msgspec is loaded: False\n", said
