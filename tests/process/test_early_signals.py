"""A worker that is asked to end while it starts ends well: there is nothing to drain yet."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

# The discard port: nobody listens there.
NOBODY = "127.0.0.1:9"


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = re.search(r"^SigCgt:\t(\w+)$", status, re.MULTILINE)
    return mask is not None and bool(int(mask[1], 16) >> (number - 1) & 1)


def loaded(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


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
        sys.executable, "-m", "penstock", *arguments,
        env={**os.environ, "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": NOBODY, "PENSTOCK_HTTP__PORT": "0"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert worker.stderr is not None

    async def listens() -> bool:
        # SIGTERM's bit: Python itself catches SIGINT from its first moment on.
        return catches(worker.pid, signal.SIGTERM)

    await until(listens, lambda: f"{worker.pid} to care about signals")
    is_early = "msgspec" not in loaded(worker.pid)
    worker.send_signal(number)
    said = (await worker.stderr.read()).decode()
    assert await worker.wait() == 0, said
    assert "Traceback" not in said
    assert is_early, "libraries were loaded before signals were cared for"
