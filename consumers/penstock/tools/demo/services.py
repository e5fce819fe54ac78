"""Provides the services of the demo, which are its own child processes or the running stack. Also
makes the address of the page of the demo's worker, and opens it in a browser.

Rule: a `DemoPlace` has the environment variables that lead a worker to these services, and a bucket
to write to. Everything that the demo makes in these services is removed at the end. All other
settings (window, limits, ...) are the user's. A browser is opened only if there is a desktop and
the demo runs in a terminal.
"""

import asyncio
import json
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
from rich.console import Console

from penstock import config
from penstock.adapters.kafka.topics import TopicShape, create_topics, delete_topics
from penstock.config.variables import variable
from penstock.errors import EXIT_UNREACHABLE, Fatal, Unreachable, usage
from penstock.process.children import address, free_port, running
from penstock.terminal_text import tell

STACK_SCRIPT = Path(__file__).parents[4] / "scripts" / "stack"
PARTITIONS = 4
# An answered object is deleted after this time. A worker that takes over begins at the last commit.
# The last commit is younger than this, so the worker needs no deleted object.
KEEP_S = 60.0
# Fetches wait only this long, because the embedded broker answers a fetch only after its full wait,
# even if records have come.
FETCH_WAIT_MS = 4
# A dozen cameras at 5 Hz bring an object every 16 ms. A short window hardly ever has rows of two
# objects, so a longer window would only add latency.
WINDOW_MS = 5
# The mock broker looks for what a fetch wants from the oldest record on that it keeps. In 5 MB of
# short references these are 25,000 after half an hour, and a fetch costs it 2 ms more than at first
# (0.2 ms with references of this size). A partition has at most some 900 unread ones.
REFERENCE_BYTES = 1_024
HOST = "127.0.0.1"
# If this variable is set, the worker's page offers to kill the worker; see
# penstock.ops.page.actions.
DEMO: Final = "PENSTOCK_DEMO"


@dataclass(frozen=True)
class DemoPlace:
    """The services of one run. `environ`: the environment variables of a worker that uses these
    services. `folder`: the folder for logs, which is removed at the end. `write`: a function that
    stores an object under its key. `answered`: a function to be called with the key of each
    answered object, because that object may be deleted soon. `reference_bytes`: shorter references
    are padded to so many.
    """

    title: str
    cfg: config.Config
    environ: Mapping[str, str]
    folder: Path
    bucket: str
    write: Callable[[str, bytes], Awaitable[None]]
    answered: Callable[[str], None]
    reference_bytes: int = 0


class _Folder:
    """A folder that is used as a bucket. Old objects are deleted, because the objects of a few
    hours would fill a disk.
    """

    def __init__(self, folder: Path, keep_s: float, now_s: Callable[[], float]) -> None:
        self._folder = folder
        self._keep_s = keep_s
        self._now_s = now_s
        self._made: set[Path] = set()
        self._answered: deque[tuple[float, str]] = deque()

    async def write(self, key: str, body: bytes) -> None:
        """Write the object. The event loop's own thread writes it, because a few KB are in the page
        cache sooner than another thread would begin.
        """
        path = self._folder / key
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        path.write_bytes(body)

    def answered(self, key: str) -> None:
        now_s = self._now_s()
        self._answered.append((now_s, key))
        while self._answered[0][0] < now_s - self._keep_s:
            (self._folder / self._answered.popleft()[1]).unlink(missing_ok=True)


@asynccontextmanager
async def embedded(path: Path | None, *, frames: bool = False) -> AsyncIterator[DemoPlace]:
    """Services that the demo starts itself: the broker and the model server are child processes,
    and the store is a folder. `frames`: True if the objects are pictures.
    """
    async with AsyncExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        log = folder / "services.log"
        broker, model = [
            await cleanup.enter_async_context(running(name, module, log, environ=os.environ))
            for name, module in (
                ("the embedded broker", "penstock.tools.embedded.broker"),
                ("the embedded model server", "penstock.tools.embedded.model_server"),
            )
        ]
        objects = folder / "objects"
        bucket = "sensors"
        settings = [
            config.Kafka(
                bootstrap_servers=await address(broker, log),
                group="penstock-demo",
                fetch_wait_ms=FETCH_WAIT_MS,
            ),
            config.Objects(endpoint_url=objects.as_uri(), allow=[bucket]),
            config.Model(url=await address(model, log), request="bytes" if frames else "float32"),
            # The broker keeps only 5 MB of a partition. Compressed records fill these 5 MB more
            # slowly.
            config.Output(compression="zstd"),
            free_http(),
        ]
        # The mock broker has no transactions.
        variables = as_environment(settings) | {"PENSTOCK_DELIVERY__GUARANTEE": "at_least_once"}
        if "window.max_wait_ms" not in config.resolve(path).sources:
            variables["PENSTOCK_WINDOW__MAX_WAIT_MS"] = str(WINDOW_MS)
        cfg, environ = _settled(path, variables)
        files = _Folder(
            objects / bucket, KEEP_S + cfg.delivery.commit_interval_ms / 1000, time.monotonic
        )
        yield DemoPlace(
            "librdkafka's mock broker, a folder as bucket, an embedded model; "
            f"window {cfg.window.max_wait_ms} ms",
            cfg,
            environ,
            folder,
            bucket,
            files.write,
            files.answered,
            REFERENCE_BYTES,
        )


@asynccontextmanager
async def on_stack(path: Path | None) -> AsyncIterator[DemoPlace]:
    """Services that run already: those that the settings name, or else those of `scripts/stack`.
    The topics and the bucket are made for the demo.
    """
    own = f"demo-{secrets.token_hex(4)}"
    stack = await asyncio.to_thread(_stack_environment) if _names_no_services(path) else {}
    names = {
        "PENSTOCK_KAFKA__INPUT_TOPIC": f"{own}-refs",
        "PENSTOCK_KAFKA__GROUP": own,
        "PENSTOCK_OUTPUT__TOPIC": f"{own}-predictions",
        "PENSTOCK_OUTPUT__DLQ_TOPIC": "",
        "PENSTOCK_OBJECTS__ALLOW": own,
    }
    cfg, environ = _settled(path, stack | names | as_environment([free_http()]))
    async with AsyncExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        files = fsspec.filesystem(
            "s3",
            endpoint_url=cfg.objects.endpoint_url,
            key=cfg.objects.key,
            secret=cfg.objects.secret,
            client_kwargs={"region_name": cfg.objects.region},
        )
        await _in_store(files.mkdir, own)
        cleanup.push_async_callback(_tidy, _in_store, files.rm, own, recursive=True)
        cleanup.push_async_callback(_tidy, delete_topics, cfg.kafka, cfg.topics)
        await create_topics(cfg.kafka, cfg.topics, TopicShape(PARTITIONS))
        yield DemoPlace(
            f"Kafka {cfg.kafka.bootstrap_servers}, objects {cfg.objects.endpoint_url}, "
            f"model server {cfg.model.url}",
            cfg,
            environ,
            folder,
            own,
            lambda key, body: _in_store(files.pipe_file, f"{own}/{key}", body),
            lambda key: None,
        )


async def _in_store(action: Callable[..., None], *arguments: Any, **options: Any) -> None:
    try:
        await asyncio.to_thread(action, *arguments, **options)
    # fsspec passes on the errors of the store's own library, which may be of any type
    except Exception as error:
        raise Unreachable(f"the object store refused {arguments[0]}: {error!r}") from error


async def _tidy(remove: Callable[..., Awaitable[None]], *arguments: Any, **options: Any) -> None:
    """Clean up by calling `remove`. If `remove` fails, this is ignored: the service is gone then,
    and another error has already said so.
    """
    with suppress(Unreachable):
        await remove(*arguments, **options)


def as_environment(sections: list[config.Section]) -> dict[str, str]:
    """Every key of these sections as an environment variable, so that no other source can set the
    key.
    """
    return {
        variable(type(section).__name__, key): _as_text(getattr(section, key))
        for section in sections
        for key in section.__struct_fields__
    }


def _as_text(value: Any) -> str:
    if isinstance(value, list | bool):
        return json.dumps(value)
    return "" if value is None else str(value)


def _settled(
    path: Path | None, variables: Mapping[str, str]
) -> tuple[config.Config, dict[str, str]]:
    # `DEMO` lets the worker's page offer to kill it.
    environ = {**os.environ, **variables, DEMO: "1"}
    return config.load(path, environ), environ


def free_http() -> config.Http:
    """The settings for a worker's page on a free port. There is a token, because the page can kill
    the worker. The page shows samples of rows, because in the demo rows are no secrets.
    """
    return config.Http(host=HOST, port=free_port(), token=secrets.token_urlsafe(16), samples=True)


def _names_no_services(path: Path | None) -> bool:
    return path is None and "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS" not in os.environ


def _stack_environment() -> dict[str, str]:
    """The variables that `scripts/stack env` exports."""
    if not STACK_SCRIPT.exists():
        raise usage(
            "--stack outside a checkout needs the services' addresses: set "
            "kafka.bootstrap_servers, objects.endpoint_url and model.url"
        )
    answer = subprocess.run([STACK_SCRIPT, "env"], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise Fatal(answer.stderr.strip(), exit_code=EXIT_UNREACHABLE)
    words = (shlex.split(line) for line in answer.stdout.splitlines())
    return dict(word.split("=", 1) for _, word in words)


def page_address(http: config.Http) -> str:
    """The address of the page, with the token behind `#`. The page reads the token there, and a
    browser never sends this part of an address to a server.
    """
    return f"http://{http.host}:{http.port}/#token={http.token}"


def say(http: config.Http, console: Console) -> None:
    tell(console, f"the live page, where the worker can be killed: {page_address(http)}")


def open_browser(http: config.Http, console: Console) -> None:
    """Open the page in a browser if there is a desktop and a terminal; otherwise do nothing."""
    desktop = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    if console.is_terminal and desktop:
        webbrowser.open(page_address(http))
