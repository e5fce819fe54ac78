"""The page of the demo's worker: its address for a person, and questions to it.

Rule: a browser is opened only on a desktop, for somebody who sits at a terminal. Owner: the demo.
"""

import os
import sys
import urllib.request
import webbrowser
from contextlib import suppress
from typing import Final

from rich.console import Console

from penstock import config
from penstock.terminal_text import tell

# The worker's page then offers to kill it; see penstock.ops.page.actions.
DEMO: Final = "PENSTOCK_DEMO"
HTTP_TIMEOUT_S: Final = 1.0


def address(http: config.Http) -> str:
    """A browser sends nobody what is behind the `#`; the page takes the token from there."""
    return f"http://{http.host}:{http.port}/#token={http.token}"


def say(http: config.Http, console: Console) -> None:
    tell(console, f"the live page, where the worker can be killed: {address(http)}")


def open_browser(http: config.Http, console: Console) -> None:
    """Does nothing without a desktop."""
    desktop = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    if console.is_terminal and desktop:
        webbrowser.open(address(http))


def ask(http: config.Http, path: str) -> bytes | None:
    """The body of the page; None unless the status is 200."""
    request = urllib.request.Request(
        f"http://{http.host}:{http.port}{path}", headers={"Authorization": f"Bearer {http.token}"}
    )
    with suppress(OSError), urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:
        body: bytes = answer.read()
        return body
    return None
