"""The page of the demo's worker: its address for a person.

Rule: a browser is opened only if there is a desktop and the demo runs in a terminal. Owner: the
demo.
"""

import os
import sys
import webbrowser
from typing import Final

from rich.console import Console

from penstock import config
from penstock.terminal_text import tell

# With this variable set, the worker's page offers to kill it; see penstock.ops.page.actions.
DEMO: Final = "PENSTOCK_DEMO"


def address(http: config.Http) -> str:
    """The address with the token behind `#`, where the page finds it. A browser sends that part to
    no server.
    """
    return f"http://{http.host}:{http.port}/#token={http.token}"


def say(http: config.Http, console: Console) -> None:
    tell(console, f"the live page, where the worker can be killed: {address(http)}")


def open_browser(http: config.Http, console: Console) -> None:
    """Open the page if there is a desktop; else do nothing."""
    desktop = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    if console.is_terminal and desktop:
        webbrowser.open(address(http))
