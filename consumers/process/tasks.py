"""Processes of the bench: a task in JSON to stdin, one JSON answer a line from stdout.

Rule: a child does one thing, ends by itself and never outlives the block that started it; what it
has to say to people goes to stderr.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from consumers.errors import Fatal, PenstockError
from consumers.process.children import Child, start

T = TypeVar("T")


@asynccontextmanager
async def child(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None
) -> AsyncIterator[Child]:
    """`python -m` with these arguments. A block that fails stops it; else it ends by itself. Where
    nothing is said to it, its standard input stays open until we end (`parent.OPTION`).
    """
    process = await start(
        "a process of the bench",
        *arguments,
        environ={**os.environ, **(env or {})},
    )
    try:
        if stdin is not None:
            process.say(stdin)
        yield process
        # Not asked to: a signal to a process that is just ending loses its exit code.
        await process.ended()
    except BaseException:
        await stop(process)
        raise


async def stop(process: Child) -> int:
    """Ask it to end, and see that it does; the exit code."""
    if process.code is None:
        process.ask_to_end()
    return await process.ended()


async def line(process: Child, kind: type[T]) -> T:
    """The next answer of a child."""
    text = await process.line()
    if not text:
        raise Fatal(f"{process.name} ended early, with exit code {await process.wait()}")
    return msgspec.json.decode(text, type=kind)


async def ask(module: str, task: msgspec.Struct, kind: type[T]) -> T:
    """Run one child to its end."""
    async with child(f"consumers.bench.{module}", stdin=msgspec.json.encode(task)) as process:
        return await line(process, kind)


def serve(kind: type[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """The child's side: read the task, do it; a failure goes to stderr and makes the exit code."""
    try:
        asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.read(), type=kind)))
    except* PenstockError as failures:
        sys.exit("\n".join(map(str, failures.exceptions)))


def say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
