"""The other members of the group: the figures and the worst problem of each, as its own page tells
them.

Rule: the peers that `http.peers` names are asked every few seconds, and only while somebody looks
at this page. Few peers are asked at a time. The time for an answer and the size of an answer are
bounded, and no page waits for a peer. A peer that does not answer is shown by its address, with the
reason. Only the fields that are declared here are read of an answer. Owner: the page's server.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from penstock import config
from penstock.adapters.http.peer_addresses import PORT, Address, address_of, numbers_of
from penstock.process.stopping import meanwhile

EVERY_S: Final = 5.0
ANSWER_S: Final = 2.0
MOST_PEERS: Final = 64
AT_A_TIME: Final = 16
MOST_BYTES: Final = 4 << 20


class _Assignment(Struct):
    lag: int | None = None


class _Problem(Struct):
    level: str
    what: str


class _Flow(Struct):
    p99_ms: float | None = None


class _Status(Struct):
    """The status of a worker, or of a supervisor, whose `processes` have the status of each
    worker.
    """

    host: str = ""
    pid: int = 0
    version: str = ""
    uptime_s: float = 0.0
    backlog_s: float = 0.0
    assignments: list[_Assignment] = []
    rates: dict[str, float] = {}
    flow: _Flow = msgspec.field(default_factory=_Flow)
    problems: list[_Problem] = []
    processes: list["_Status"] = []


_decode = msgspec.json.Decoder(_Status).decode


class Peers:
    """`look` returns the last answers of the peers. While `watching` runs, a call of `look` has a
    second effect: the peers are asked again in the background.
    """

    def __init__(self, settings: config.Http) -> None:
        """Raises `Fatal` if one of `http.peers` is no address."""
        self._named = [address_of(one, settings.port or PORT) for one in settings.peers or ()]
        self._headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else None
        self._wanted = asyncio.Event()
        self._members: list[dict[str, Any]] | None = None
        self._left_out = 0
        self._at_s = 0.0

    def look(self) -> dict[str, Any] | None:
        """The last answers. None: `http.peers` is empty, or the first round of questions is not
        over.
        """
        self._wanted.set()
        if self._members is None:
            return None
        return {
            "age_s": round(asyncio.get_running_loop().time() - self._at_s, 1),
            "members": self._members,
            "left_out": self._left_out,
        }

    def watching(self) -> AbstractAsyncContextManager[None]:
        return meanwhile(self._ask_forever()) if self._named else nullcontext()

    async def _ask_forever(self) -> None:
        async with aiohttp.ClientSession(
            # Connections are not kept: a kept one would be dead once its member has ended.
            connector=aiohttp.TCPConnector(limit=AT_A_TIME, force_close=True),
            headers=self._headers,
        ) as session:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._ask_all(session)
                await asyncio.sleep(EVERY_S)

    async def _ask_all(self, session: aiohttp.ClientSession) -> None:
        found = await asyncio.gather(*map(_addresses, self._named))
        silent = [one for one in found if isinstance(one, dict)]
        addresses = sorted({each for one in found if not isinstance(one, dict) for each in one})
        asked = addresses[:MOST_PEERS]
        some = asyncio.Semaphore(AT_A_TIME)
        answers = await asyncio.gather(*(_ask(session, one, some) for one in asked))
        self._members, self._left_out = silent + answers, len(addresses) - len(asked)
        self._at_s = asyncio.get_running_loop().time()


async def _addresses(named: Address) -> Sequence[Address] | dict[str, Any]:
    """The addresses to which this name resolves. If the name has no address, the entry of a silent
    peer.
    """
    try:
        return await numbers_of(named)
    except (OSError, UnicodeError, TimeoutError) as error:
        return _silent(named, f"its name has no address: {str(error) or type(error).__name__}")


def _silent(address: Address, why: str) -> dict[str, Any]:
    return {"peer": str(address), "why": why}


async def _ask(
    session: aiohttp.ClientSession, address: Address, some: asyncio.Semaphore
) -> dict[str, Any]:
    url = f"http://{address}/api/status"
    try:
        async with (
            some,
            asyncio.timeout(ANSWER_S),
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != web.HTTPOk.status_code:
                return _silent(address, f"it answers with {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    return _silent(address, "its answer is no status: it is too long")
        return {"peer": str(address), "why": None} | _told(_decode(body))
    except TimeoutError:
        return _silent(address, f"no answer within {ANSWER_S:.0f} s")
    except (aiohttp.ClientError, OSError) as error:
        return _silent(address, f"no answer: {error}")
    except msgspec.MsgspecError as error:
        return _silent(address, f"its answer is no status: {error}")


def _told(status: _Status) -> dict[str, Any]:
    workers = status.processes or [status]
    lags = [one.lag for worker in workers for one in worker.assignments]
    p99s = [worker.flow.p99_ms for worker in workers if worker.flow.p99_ms is not None]
    first = status.problems[0] if status.problems else None
    return {
        "host": workers[0].host,
        "pids": [worker.pid for worker in workers],
        "version": workers[0].version,
        "uptime_s": workers[0].uptime_s,
        "partitions": len(lags),
        "lag": None if None in lags else sum(lag for lag in lags if lag is not None),
        "backlog_s": max(worker.backlog_s for worker in workers),
        "rows_per_s": round(sum(worker.rates.get("rows_per_s", 0.0) for worker in workers), 1),
        "p99_ms": max(p99s, default=None),
        "level": None if first is None else first.level,
        "first": None if first is None else first.what,
    }
