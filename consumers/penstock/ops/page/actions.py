"""What people may do on the page by `penstock dlq`: send letters back, let a stopped stream go on.

Rule: an action runs the `penstock dlq` command that people could type, one at a time and bounded,
in a process beside the worker. It is asked for by POST with the token in a header, which a foreign
page cannot send; without `http.token` there are no actions.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Meta

from penstock.ops.http_server import HTTP_FD, as_json

log = logging.getLogger(__name__)

# The demo sets this environment variable, so that its worker can be killed on the page. The
# variable's name has no `__`, so the configuration does not read the variable as a key.
DEMO: Final = "PENSTOCK_DEMO"
# A command may take this long: enough to read millions of letters.
MOST_S: Final = 300.0
# If a command's output is longer than this many characters, only the end of the output is shown.
_SHOWN = 4_000

Code = Annotated[str, Meta(pattern=r"^[a-z_]{1,40}\Z")]
# An argument of a command cannot contain a NUL.
Stream = Annotated[str, Meta(pattern=r"^[^\0]+\Z", max_length=4_000)]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class Redrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters are sent back. `dry`: True if the letters are only listed. `glob`: True if
    `stream` is a glob instead of a name. `at_ms`: if set, only the letters that failed in this
    millisecond are sent. `since`: if set, only the letters up to this age, such as `15m`, are sent.
    `latest`: True if the objects are read as they are now, and not in the version that their
    letters name.
    """

    dry: bool
    code: Code | None = None
    stream: Stream | None = None
    glob: bool = False
    at_ms: Annotated[int, Meta(ge=0, le=253_402_300_799_000)] | None = None
    since: Annotated[str, Meta(pattern=r"^[0-9]{1,9}[smhd]\Z")] | None = None
    latest: bool = False


class GoOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream that stands still goes on. With `resume` it goes on with the object at which it
    stands; with `skip` it goes on after that object.
    """

    verb: Literal["resume", "skip"]
    stream: Stream


class Actions:
    """The actions of one worker. `handlers`: for each action's path, its handler. `path`: the
    worker's configuration file, if it has one.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._running = asyncio.Lock()

    @property
    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = {
            "/api/redrive": self._handler(Redrive, redrive),
            "/api/line": self._handler(GoOn, go_on),
        }
        if DEMO in os.environ:
            handlers["/api/kill"] = _kill
        return handlers

    def _handler(self, kind: type[Asked], words: Callable[[Asked], Sequence[str]]) -> Handler:
        async def handler(request: web.Request) -> web.Response:
            try:
                asked = msgspec.json.decode(await request.read(), type=kind)
            except msgspec.DecodeError as error:
                return as_json({"ok": False, "said": f"this cannot be asked for: {error}"}, 400)
            if self._running.locked():
                return as_json({"ok": False, "said": "another action is running; wait for it"}, 409)
            async with self._running:
                return await self._run(words(asked))

        return handler

    async def _run(self, words: Sequence[str]) -> web.Response:
        verb, *options = words
        config = [] if self._path is None else [f"--config={self._path}"]
        log.info("asked for on the page: penstock dlq %s", " ".join(words))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", "dlq", verb, *config, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: text for name, text in os.environ.items() if name != HTTP_FD},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(MOST_S):
                out, errors = await process.communicate()
        except TimeoutError:
            message = f"it was not done after {MOST_S:.0f} s and was ended; use penstock dlq"
            return as_json({"ok": False, "said": message}, 504)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        good = process.returncode == 0
        message = (out if good else errors or out).decode(errors="replace").strip()[-_SHOWN:]
        return as_json({"ok": good, "said": message.removeprefix("penstock: ")})


def redrive(asked: Redrive) -> list[str]:
    """The words of the `penstock dlq` command. Each value is joined to its option by a `=`, so that
    the command never takes a value for an option.
    """
    words = ["redrive"]
    words += ["--dry-run"] if asked.dry else []
    words += ["--latest"] if asked.latest else []
    words += [f"--code={asked.code}"] if asked.code else []
    if asked.stream is not None:
        words.append(f"--stream={asked.stream if asked.glob else _escaped(asked.stream)}")
    if asked.at_ms is not None:
        words += [f"--since={_iso(asked.at_ms)}", f"--until={_iso(asked.at_ms + 1)}"]
    elif asked.since is not None:
        words.append(f"--since={asked.since}")
    return words


def go_on(asked: GoOn) -> list[str]:
    return [asked.verb, "--", asked.stream]


def _escaped(name: str) -> str:
    """A glob that matches only this name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


async def _kill(_: web.Request) -> web.Response:
    """End the worker as `kill -9` does: nothing is drained, and the request gets no answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    return web.Response(status=500)
