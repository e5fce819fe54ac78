"""Processes of the bench: they read a task as JSON from stdin and print one JSON answer per line.

Rule: a child does one task, ends by itself and never outlives the block that started it. Messages
for people go to stderr. Owner: the bench.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from penstock.errors import Fatal, PenstockError
from penstock.process.children import Child, start

T = TypeVar("T")


@asynccontextmanager
async def child(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None
) -> AsyncIterator[Child]:
    """Run `python -m` with these arguments. If the block fails, the child is stopped; else it ends
    by itself. Without `stdin`, the child's standard input stays open until this process ends
    (`END_WITH_PARENT`).
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
        # Only wait, because a signal to a process that is about to end would change its exit code.
        await process.ended()
    except BaseException:
        await stop(process)
        raise


async def stop(process: Child) -> int:
    """Ask the child to end, and kill it if it does not. Returns the exit code."""
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
    """Run one child for one task, and return its answer."""
    async with child(f"penstock.bench.{module}", stdin=msgspec.json.encode(task)) as process:
        return await line(process, kind)


def serve(kind: type[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """The child's side: read the task and do it. A failure goes to stderr, with exit code 1."""
    try:
        asyncio.run(work(msgspec.json.decode(sys.stdin.buffer.read(), type=kind)))
    except* PenstockError as failures:
        sys.exit("\n".join(map(str, failures.exceptions)))


def say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
