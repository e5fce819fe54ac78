"""`/`: the live page for people, one HTML document that loads nothing else.

Rule: it has no data of a worker. `frame.html` has what all pages share: style, token, helpers and
the requests; each `page.js` has what one page shows. The script asks `/api/status`, with the token
if there is one, and inserts texts as text, never as HTML. Headers limit what the browser may run
and ask. Owner: the pages' servers.
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
    """The frame with the script `page.js` of that package."""
    script = resources.files(package).joinpath("page.js").read_text()
    return FRAME.replace("@TITLE@", title).replace("@SHOW@\n", script)


SHELL: Final = shell_of("penstock.ops", "penstock")


def page_of(shell: str) -> Handler:
    """A handler for this page. Its headers allow its own script and style only, by hash."""
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
