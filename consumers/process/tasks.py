"""Processes of the bench: a task in JSON to stdin, one JSON answer a line from stdout.

Rule: a child does one thing, ends by itself and never outlives the block that started it; what it
has to say to people goes to stderr.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from consumers.errors import Fatal, PenstockError

STOP_S = 20.0
# A reader's answer is one line with every tick of a trial.
LINE_BYTES = 256 << 20

T = TypeVar("T")


@asynccontextmanager
async def child(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m` with these arguments. A block that fails stops it; else it ends by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
        # Ctrl-C is for the bench, which then ends its children.
        start_new_session=True,
    )
    try:
        if stdin is not None and process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        yield process
        # Not asked to: a signal to a process that is just ending loses its exit code.
        await _end(process)
    except BaseException:
        await stop(process)
        raise


async def stop(process: asyncio.subprocess.Process) -> int:
    """Ask it to end, and see that it does; the exit code."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    return await _end(process)


async def _end(process: asyncio.subprocess.Process) -> int:
    try:
        async with asyncio.timeout(STOP_S):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()


async def line(process: asyncio.subprocess.Process, kind: type[T]) -> T:
    """The next answer of a child."""
    assert process.stdout is not None
    text = await process.stdout.readline()
    if not text:
        raise Fatal(f"a process of the bench ended early, with exit code {await process.wait()}")
    return msgspec.json.decode(text, type=kind)


async def ask(module: str, task: msgspec.Struct, kind: type[T]) -> T:
    """Run one child to its end."""
    async with child(f"consumers.bench.{module}", stdin=msgspec.json.encode(task)) as process:
        return await line(process, kind)


def serve(kind: type[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """The child's side: read the task, do it; a failure is told on stderr and by the exit code."""
    try:
        asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.read(), type=kind)))
    except* PenstockError as failures:
        sys.exit("\n".join(map(str, failures.exceptions)))


def say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
