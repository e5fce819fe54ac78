"""The one page of several workers: `/healthz`, `/readyz`, `/metrics` of all of them.

Rule: every answer is asked of the members' own pages at that moment; nothing is kept. All members
must be alive and reach the model; a member without a partition is ready as long as another has one,
because there may be more members than partitions.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from consumers import config
from consumers.ops.listening import NO_PARTITION, serving

# A member waits up to 5 s for its model before it says that it is not ready.
ANSWER_S: Final = 7.0
NOT_RUNNING: Final = "it does not run\n"
SILENT: Final = "its page does not answer\n"


class Member(Protocol):
    """What the page knows of a worker."""

    number: int
    restarts: int

    @property
    def url(self) -> str: ...

    @property
    def running(self) -> bool: ...


class Answer(NamedTuple):
    """What a member said, or what there is to say of it; `status` 0 for no answer at all."""

    status: int
    text: str


@asynccontextmanager
async def serve_members(settings: config.Http, members: Sequence[Member]) -> AsyncIterator[str]:
    """Serve while the body runs; yields the page's URL."""
    async with aiohttp.ClientSession(
        # A member that was started again knows nothing of the connections of the one before it.
        connector=aiohttp.TCPConnector(force_close=True),
        headers={"Authorization": f"Bearer {settings.token}"} if settings.token else None,
        timeout=aiohttp.ClientTimeout(total=ANSWER_S),
    ) as session:

        async def ask(path: str) -> list[Answer]:
            return await asyncio.gather(*(_ask(session, member, path) for member in members))

        async def healthz(_: web.Request) -> web.Response:
            return _verdict(await ask("/healthz"), enough=1, good="ok\n")

        async def readyz(_: web.Request) -> web.Response:
            answers = await ask("/readyz")
            working = [answer for answer in answers if answer.status == 200]
            if not working and all(answer.text == NO_PARTITION for answer in answers):
                return web.Response(status=503, text=NO_PARTITION)
            spare = [answer for answer in answers if answer.text == NO_PARTITION]
            return _verdict(answers)

        async def metrics(_: web.Request) -> web.Response:
            answers = await ask("/metrics")
            return web.Response(
                body=generate_latest(_Merged(members, answers)),
                headers={"Content-Type": CONTENT_TYPE_LATEST},
            )

        pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
        async with serving(settings, pages) as url:
            yield url
