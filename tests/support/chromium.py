"""A headless Chromium, driven by its DevTools protocol.

Rule: one browser for a file of tests, with a profile of its own that is removed; a page has a tab
and collects what the browser's console says. Tests skip where there is no Chromium.
"""

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from tests.support.waiting import DEADLINE_S, until

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0", "--hide-scrollbars", "about:blank",
)  # fmt: skip
LOUD = ("error", "warning", "assert")


class Tab:
    """`complaints`: errors and warnings of the console, and what the browser itself logs."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def listen(self) -> None:
        async for message in self._socket:
            document = message.json()
            if "id" in document:
                answer = self._answers.pop(document["id"])
                # Who asked may have given up.
                if not answer.done():
                    answer.set_result(document)
            elif document["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(document["params"]["exceptionDetails"]))
            elif document["method"] == "Log.entryAdded":
                self.complaints.append(str(document["params"]["entry"]))
            elif (
                document["method"] == "Runtime.consoleAPICalled"
                and document["params"]["type"] in LOUD
            ):
                self.complaints.append(str(document["params"]))

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await answer
        assert "error" not in said, said
        return said["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; a promise is waited for."""
        reply = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    async def open(self, url: str, *, width: int = 1440, height: int = 900) -> None:
        await self.size(width, height)
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int = 900) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    async def dark(self) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def until(self, script: str, within_s: float = DEADLINE_S) -> None:
        """Wait until the expression is true."""
        text = ""

        async def holds() -> bool:
            nonlocal text
            if await self.run("document.readyState") != "complete":
                return False
            text = await self.text("body")
            return bool(await self.run(f"Boolean({script})"))

        def said() -> str:
            return f"{script}; the console says {self.complaints}, the page {text}"

        await until(holds, said, within_s)

    async def text(self, selector: str) -> str:
        """What a person reads there."""
        found = await self.run(f"document.querySelector({selector!r})?.innerText ?? ''")
        assert isinstance(found, str)
        return found

    async def picture(self) -> bytes:
        """A PNG of the whole page."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        reply = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(reply["data"])


class Browser:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        async with self._session.put(f"{self._url}/json/new?about:blank") as answer:
            made = await answer.json()
        async with (
            self._session.ws_connect(made["webSocketDebuggerUrl"], max_msg_size=0) as socket,
            asyncio.TaskGroup() as tasks,
        ):
            tab = Tab(socket)
            listening = tasks.create_task(tab.listen())
            for domain in ("Page", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            try:
                yield tab
            finally:
                listening.cancel()
        async with self._session.get(f"{self._url}/json/close/{made['id']}"):
            pass


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium; on Debian: apt-get install --no-install-recommends chromium")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            path, *OPTIONS[:-1], f"--user-data-dir={folder}", OPTIONS[-1],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:

            async def listens() -> bool:
                return _port(folder) is not None

            await until(listens, lambda: "Chromium's port")
            url = f"http://127.0.0.1:{_port(folder)}"
            async with aiohttp.ClientSession() as session:
                yield Browser(session, url)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _port(profile: str) -> str | None:
    """Chromium writes it there when it listens."""
    file = Path(profile, "DevToolsActivePort")
    text = file.read_text() if file.exists() else ""
    return text.splitlines()[0] if "\n" in text else None
