"""What the worker says of itself that listens at `http.host` and `http.port`.

Rule: if nobody listens there, or another server does, the answer is None; the caller decides what
that means. Owner: `penstock doctor` and `penstock top`.
"""

from typing import Any, Final

import aiohttp
import msgspec

from penstock import config
from penstock.errors import EXIT_USAGE, Fatal

WAIT: Final = aiohttp.ClientTimeout(total=5)
# A worker that listens on all addresses is asked on this machine's own.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def url_of(http: config.Http) -> str:
    return f"http://{_EVERYWHERE.get(http.host, http.host)}:{http.port}"


async def status_of(http: config.Http) -> dict[str, Any] | None:
    """What its page tells; None: no worker answers. Raises `Fatal` if it wants another token."""
    headers = {"Authorization": f"Bearer {http.token}"} if http.token else {}
    url = url_of(http)
    try:
        async with (
            aiohttp.ClientSession(timeout=WAIT, headers=headers) as session,
            session.get(f"{url}/api/status", allow_redirects=False) as answer,
        ):
            if answer.status == 401:
                said = f"{url} wants another token than http.token: give the worker's"
                raise Fatal(said, exit_code=EXIT_USAGE)
            document = msgspec.json.decode(await answer.read())
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return None
    is_status = isinstance(document, dict) and isinstance(document.get("problems"), list)
    return document if is_status else None
