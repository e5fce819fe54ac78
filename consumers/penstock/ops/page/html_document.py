"""`/`: the live page for people, one HTML document that loads nothing else.

Rule: the document holds no data of a worker. It says only whether the page must ask the viewer for
a token. All pages share `frame.html`, `style.css` and `frame.js` (token, helpers, the stream of
updates). Each other script shows one part of a page. The files are joined when this module is
loaded. The scripts insert texts as text, never as HTML, and headers limit what the browser may run
and load. Owner: the pages' servers.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.ops.http_server import ASKS

_HERE: Final = resources.files(__package__)
# The order matters: a script uses what the scripts before it define.
PARTS: Final = (
    "verdict",
    "figures",
    "flow",
    "streams",
    "partitions",
    "peers",
    "models",
    "actions",
    "letters",
    "samples",
    "stopped",
    "worker",
)


def document_of(title: str, scripts: Sequence[Traversable]) -> str:
    """The whole document, with these scripts behind the frame's own. The last script must define
    the function `show`, which shows an update.
    """
    script = "".join(one.read_text() for one in (_part("frame"), *scripts, _part("start")))
    frame = _HERE.joinpath("frame.html").read_text()
    style = _HERE.joinpath("style.css").read_text()
    return frame.replace("@TITLE@", title).replace("@STYLE@\n", style).replace("@SCRIPT@\n", script)


def _part(name: str) -> Traversable:
    return _HERE.joinpath("parts", f"{name}.js")


DOCUMENT: Final = document_of("penstock", [_part(name) for name in PARTS])


def handler_of(shell: str) -> Handler:
    """The handler that answers with this document. Its headers allow only the document's own script
    and style, by their hashes.
    """
    asking = shell.replace("<body>", "<body data-asks>", 1)
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src {_hash_of(shell, 'script')}; "
            f"style-src {_hash_of(shell, 'style')}; "
            "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }

    async def page(request: web.Request) -> web.Response:
        text = asking if request.app[ASKS] else shell
        return web.Response(text=text, content_type="text/html", headers=headers)

    return page


def _hash_of(shell: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", shell, re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


page: Final = handler_of(DOCUMENT)
