"""`/`: the live page for people. One answer without anything from elsewhere, the same for all.

Rule: nothing of a worker is in it. `frame.html` has what the pages share: style, token, helpers and
the asking; a `page.js` has what one of them shows. The script asks `/api/status`, with the token if
there is one, and shows texts as text. What the browser may run and ask is pinned by the headers.
"""

import base64
import hashlib
import re
from importlib import resources
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

FRAME: Final = resources.files(__package__).joinpath("frame.html").read_text()


def shell_of(package: str, title: str) -> str:
    """The frame with what `page.js` of that package shows."""
    script = resources.files(package).joinpath("page.js").read_text()
    return FRAME.replace("@TITLE@", title).replace("@SHOW@\n", script)


SHELL: Final = shell_of("consumers.ops", "penstock")


def page_of(shell: str) -> Handler:
    """A page with its own script and style, and nothing else that runs."""
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src {_hash_of(shell, 'script')}; "
            f"style-src {_hash_of(shell, 'style')}; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=shell, content_type="text/html", headers=headers)

    return page


def _hash_of(shell: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", shell, re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


page: Final = page_of(SHELL)
