"""What running workers say: the one at `http.host` and `http.port` tells how it is, and any of the
group tells how it came by an object.

Rule: if nobody listens there, or another server does, the answer is None; the caller decides what
that means. Owner: the command that asks.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgspec

from penstock import config
from penstock.adapters.http.peers import PORT, address_of, numbers_of
from penstock.errors import Fatal, usage

UNAUTHORIZED: Final = 401
# As the page asks them.
MOST_PEERS: Final = 64
AT_A_TIME: Final = 16
WAIT: Final = aiohttp.ClientTimeout(total=5)
# A worker that listens on all addresses is asked on this machine's own.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Batch(msgspec.Struct):
    """The request that answered the object's last rows, and which request of its batch it was."""

    rows: int
    objects: int
    request: int


class Way(msgspec.Struct):
    """How an object came to its topic: `times_ms` by stage."""

    host: str
    pid: int
    took_ms: float
    times_ms: dict[str, float]
    batch: Batch | None


def url_of(http: config.Http) -> str:
    return f"http://{_EVERYWHERE.get(http.host, http.host)}:{http.port}"


async def page_of(http: config.Http, path: str, within_s: float) -> bytes | None:
    """The body of one of its pages; None unless that comes in time, with code 200."""
    url, timeout = f"{url_of(http)}{path}", aiohttp.ClientTimeout(total=within_s)
    try:
        async with _session(http) as session, session.get(url, timeout=timeout) as answer:
            return await answer.read() if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


async def status_of(http: config.Http) -> dict[str, Any] | None:
    """What its page tells; None: no worker answers. Raises `Fatal` if it wants another token."""
    url = url_of(http)
    async with _session(http) as session:
        code, document = await _asked(session, f"{url}/api/status")
    if code == UNAUTHORIZED:
        said = f"{url} wants another token than http.token: give the worker's"
        raise usage(said)
    return document if isinstance(document.get("problems"), list) else None


async def way_of(http: config.Http, id: str, model: str, output_topic: str) -> Way | str:
    """How the object of this answer came to its topic, as the worker tells that delivered it; else
    why nobody tells it.
    """
    query = {"id": id, "model": model, "output": output_topic}
    try:
        urls = [url_of(http), *await _peers(http)]
    except Fatal as error:
        return str(error)
    some = asyncio.Semaphore(AT_A_TIME)
    found: list[Way] = []
    codes: list[int] = []
    async with _session(http) as session, asyncio.TaskGroup() as tasks:

        async def ask(url: str) -> None:
            async with some:
                code, document = await _asked(session, f"{url}/api/way", query)
            try:
                found.append(msgspec.convert(document, Way))
            except msgspec.ValidationError:
                codes.append(code)
                return
            for one in running:
                one.cancel()

        running = [tasks.create_task(ask(url)) for url in dict.fromkeys(urls)]
    return found[0] if found else _why_not(codes)


async def _peers(http: config.Http) -> list[str]:
    """The URLs of those whose name has an address; raises `Fatal` if an entry is no address."""
    named = [address_of(one, http.port or PORT) for one in http.peers or ()]
    found = await asyncio.gather(*map(numbers_of, named), return_exceptions=True)
    numbers = [each for one in found if not isinstance(one, BaseException) for each in one]
    return [f"http://{each}" for each in numbers[:MOST_PEERS]]


def _why_not(codes: Sequence[int]) -> str:
    silent, refusing = codes.count(0), codes.count(UNAUTHORIZED)
    if silent == len(codes):
        return "no worker answers (http.port, http.peers)"
    whys = ["no worker that answered (http.port, http.peers) has delivered it of late"]
    if silent:
        whys.append(f"{silent} of {len(codes)} did not answer")
    if refusing:
        whys.append(f"{refusing} of {len(codes)} want another token than http.token")
    return "; ".join(whys)


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
