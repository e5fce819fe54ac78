"""What the page shows of the whole group, on all machines: partitions with their owners, and the
other members' figures.

Rule: Kafka and the peers are asked every few seconds, only while somebody looks, and no page waits
for them. Bounded are the peers asked at a time, the time for an answer, and its size; only declared
fields are read. A question that fails affects nothing else.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from penstock import config
from penstock.adapters.http.running_worker import (
    AT_A_TIME,
    MOST_PEERS,
    PORT,
    Address,
    address_of,
    numbers_of,
    proving,
)
from penstock.errors import words_of
from penstock.process.asyncio_additions import meanwhile, stopped_after

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
KAFKA_ANSWER_S: Final = 10.0
PEER_ANSWER_S: Final = 2.0
MOST_BYTES: Final = 4 << 20


class WholeGroup:
    """The group's partitions and the peers, as the page shows them."""

    def __init__(self, settings: config.Http, kafka: config.Kafka | None) -> None:
        """`kafka`: the settings of the Kafka that is asked for the partitions. Raises `Fatal` if an
        entry of `http.peers` is not an address.
        """
        self._partitions = GroupPartitions(kafka)
        self._peers = Peers(settings)

    def look(self) -> dict[str, Any]:
        return {"group": self._partitions.look(), "peers": self._peers.look()}

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with self._partitions.watching(), self._peers.watching():
            yield


class GroupPartitions:
    """`look` returns Kafka's last answer. While `watching` runs, a call of `look` has a second
    effect: Kafka is asked again in the background.
    """

    def __init__(self, kafka: config.Kafka | None) -> None:
        self._kafka = kafka
        self._wanted = asyncio.Event()
        self._partitions: list[dict[str, Any]] | None = None
        self._why: str | None = None
        self._at_s = 0.0

    def look(self) -> dict[str, Any] | None:
        """The group's partitions, or the reason why Kafka did not list them. None: Kafka has not
        answered yet.
        """
        self._wanted.set()
        if self._partitions is None and self._why is None:
            return None
        return {
            "age_s": round(asyncio.get_running_loop().time() - self._at_s, 1),
            "why": self._why,
            "partitions": self._partitions or [],
        }

    def watching(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._kafka is None else meanwhile(self._ask_forever(self._kafka))

    async def _ask_forever(self, kafka: config.Kafka) -> None:
        await self._wanted.wait()
        # This import waits until somebody looks, because a supervisor imports little.
        from penstock.adapters.kafka.group.observed import GroupView  # noqa: PLC0415

        group = GroupView(kafka)
        async with stopped_after(group.stop):
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._ask(group.partitions)
                await asyncio.sleep(EVERY_S)

    async def _ask(self, partitions: Callable[[], Awaitable[Sequence[Any]]]) -> None:
        try:
            async with asyncio.timeout(KAFKA_ANSWER_S):
                self._partitions = [partition._asdict() for partition in await partitions()]
        # Every exception is caught, because a worker must not end just because a page cannot show
        # the group.
        except Exception as error:
            self._why = words_of(error)
            log.debug("Kafka does not tell of the group: %r", error)
            return
        self._why, self._at_s = None, asyncio.get_running_loop().time()


class _Assignment(Struct):
    lag: int | None = None


class _Problem(Struct):
    level: str
    what: str


class _Flow(Struct):
    p99_ms: float | None = None


class _Status(Struct):
    """The status of a worker, or of a supervisor. `processes`: the status of each worker of a
    supervisor; empty for a worker.
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
        """Raises `Fatal` if an entry of `http.peers` is not an address."""
        self._named = [address_of(peer, settings.port or PORT) for peer in settings.peers or ()]
        self._proving = proving(settings.token)
        self._wanted = asyncio.Event()
        self._members: list[dict[str, Any]] | None = None
        self._left_out = 0
        self._at_s = 0.0

    def look(self) -> dict[str, Any] | None:
        """The last answers of all peers. None: `http.peers` is empty, or not all peers have been
        asked once.
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
            middlewares=self._proving,
        ) as session:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._ask_all(session)
                await asyncio.sleep(EVERY_S)

    async def _ask_all(self, session: aiohttp.ClientSession) -> None:
        resolved = await asyncio.gather(*map(_addresses, self._named))
        silent = [answer for answer in resolved if isinstance(answer, dict)]
        addresses = sorted(
            {each for answer in resolved if not isinstance(answer, dict) for each in answer}
        )
        asked = addresses[:MOST_PEERS]
        some = asyncio.Semaphore(AT_A_TIME)
        answers = await asyncio.gather(*(_ask_peer(session, address, some) for address in asked))
        self._members, self._left_out = silent + answers, len(addresses) - len(asked)
        self._at_s = asyncio.get_running_loop().time()


async def _addresses(named: Address) -> Sequence[Address] | dict[str, Any]:
    """The addresses to which this name resolves. If the name has no address, the entry that the
    page shows for a silent peer is returned instead.
    """
    try:
        return await numbers_of(named)
    except (OSError, UnicodeError, TimeoutError) as error:
        return _silent(named, f"its name has no address: {words_of(error)}")


def _silent(address: Address, why: str) -> dict[str, Any]:
    return {"peer": str(address), "why": why}


async def _ask_peer(
    session: aiohttp.ClientSession, address: Address, some: asyncio.Semaphore
) -> dict[str, Any]:
    url = f"http://{address}/api/status"
    try:
        async with (
            some,
            asyncio.timeout(PEER_ANSWER_S),
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
        return _silent(address, f"no answer within {PEER_ANSWER_S:.0f} s")
    except (aiohttp.ClientError, OSError) as error:
        return _silent(address, f"no answer: {error}")
    except msgspec.MsgspecError as error:
        return _silent(address, f"its answer is no status: {error}")


def _told(status: _Status) -> dict[str, Any]:
    # A process without a process id does not run, and so has no figures.
    workers = [process for process in status.processes if process.pid] or [status]
    lags = [assignment.lag for worker in workers for assignment in worker.assignments]
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
