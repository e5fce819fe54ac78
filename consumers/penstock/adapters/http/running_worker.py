"""What running workers say: the one that listens at `http.host` and `http.port` of itself, and it
or a peer of an object.

Rule: if nobody listens there, or another server does, the answer is None; the caller decides what
that means. Owner: `penstock doctor`, `penstock top` and `penstock trace`.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import aiohttp
import msgspec

from penstock import config
from penstock.adapters.http.peers import PORT, address_of, numbers_of
from penstock.errors import EXIT_USAGE, Fatal

UNAUTHORIZED: Final = 401
WAIT: Final = aiohttp.ClientTimeout(total=5)
# A worker that listens on all addresses is asked on this machine's own.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def url_of(http: config.Http) -> str:
    return f"http://{_EVERYWHERE.get(http.host, http.host)}:{http.port}"


async def status_of(http: config.Http) -> dict[str, Any] | None:
    """What its page tells; None: no worker answers. Raises `Fatal` if it wants another token."""
    url = url_of(http)
    async with _session(http) as session:
        code, document = await _asked(session, f"{url}/api/status")
    if code == UNAUTHORIZED:
        said = f"{url} wants another token than http.token: give the worker's"
        raise Fatal(said, exit_code=EXIT_USAGE)
    return document if isinstance(document.get("problems"), list) else None


async def way_of(http: config.Http, id: str, model: str) -> dict[str, Any] | None:
    """How the object of this answer came to its topic: of the worker that delivered it, if it is
    among those that are asked, and delivered it of late.
    """
    named = [address_of(one, http.port or PORT) for one in http.peers or ()]
    numbers = await asyncio.gather(*map(numbers_of, named), return_exceptions=True)
    peers = [each for found in numbers if not isinstance(found, BaseException) for each in found]
    urls = dict.fromkeys([url_of(http), *(f"http://{each}" for each in peers)])
    async with _session(http) as session:
        return await _first(session, urls, {"id": id, "model": model})


async def _first(
    session: aiohttp.ClientSession, urls: Iterable[str], query: dict[str, str]
) -> dict[str, Any] | None:
    asked = [_asked(session, f"{url}/api/way", query) for url in urls]
    for _, document in await asyncio.gather(*asked):
        if isinstance(document.get("times_ms"), dict):
            return document
    return None


def _session(http: config.Http) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {http.token}"} if http.token else {}
    return aiohttp.ClientSession(timeout=WAIT, headers=headers)


async def _asked(
    session: aiohttp.ClientSession, url: str, query: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """The answer's code and object; 0: none came. Empty if it is no JSON object."""
    try:
        async with session.get(url, params=query, allow_redirects=False) as answer:
            document = msgspec.json.decode(await answer.read())
            return answer.status, document if isinstance(document, dict) else {}
    except msgspec.DecodeError:
        return answer.status, {}
    except (aiohttp.ClientError, TimeoutError):
        return 0, {}
