"""What a supervisor's page shows, joined from the answers of its members' own pages.

Rule: every request is passed to all members, and no answer is kept. `/readyz` holds if all run and
reach the model, and one has partitions: there may be more members than partitions.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import orjson
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from penstock.adapters.http.running_worker import proving
from penstock.core.diagnosis.diagnose import diagnose
from penstock.ops.http_server import NO_PARTITION
from penstock.ops.page.page import ALIVE, SAMPLES, WAY, PageSource, Picture, Probe

# A member's page waits for no service, so a member that takes longer than this to answer hangs.
ANSWER_S: Final = 2.0


class MemberOnPage(Protocol):
    """The part of a supervisor's `Member` that the page needs."""

    @property
    def number(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    @property
    def url(self) -> str: ...

    @property
    def running(self) -> bool: ...


class _MemberAnswer(NamedTuple):
    """A member's answer; if no answer came, `text` says why."""

    member: MemberOnPage
    good: bool
    text: str
    body: bytes = b""
    type: str = ""

    @property
    def line(self) -> str:
        return f"process {self.member.number}: {self.text}"


class MembersSource(PageSource):
    # Prometheus' plain format is what the members' metrics are joined in.
    openmetrics = False

    def __init__(self, members: Sequence[MemberOnPage], token: str | None) -> None:
        self._members = members
        self._token = token

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            # Connections are not kept: a kept one would be dead once its member was started again.
            connector=aiohttp.TCPConnector(force_close=True),
            middlewares=proving(self._token),
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
        ) as self._session:
            yield

    async def alive(self) -> Probe:
        bad = [answer for answer in await self._ask_all("/healthz") if not answer.good]
        return _unavailable(bad) if bad else ALIVE

    async def ready(self) -> Probe:
        answers = await self._ask_all("/readyz")
        idle = [answer for answer in answers if answer.text == NO_PARTITION]
        bad = [answer for answer in answers if not answer.good and answer not in idle]
        if bad or len(idle) == len(self._members):
            return _unavailable(bad or idle)
        return Probe(True, "".join(answer.line for answer in answers))

    async def metrics(self) -> Collector:
        return _Merged(await self._ask_all("/metrics"))

    async def status(self) -> dict[str, Any]:
        processes = [_status(answer) for answer in await self._ask_all("/api/status")]
        whole = {"v": 1, "processes": processes}
        return whole | {"problems": [problem._asdict() for problem in diagnose(whole)]}

    async def way(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        """As the member tells it that delivered the object."""
        answers = [answer for answer in await self._ask_all(WAY, query) if answer.good]
        return orjson.loads(answers[0].body) if answers else None

    async def samples(self) -> Sequence[dict[str, Any]]:
        """Those of all members. A picture's first number is its member's."""
        joined = []
        for answer in await self._ask_all(SAMPLES):
            process = answer.member.number
            for sample in orjson.loads(answer.body)["samples"] if answer.good else ():
                path = f"{process}/{sample['number']}" if sample["picture"] else None
                joined.append(sample | {"process": process, "picture": path})
        return joined

    async def picture(self, numbers: Sequence[int]) -> Picture | None:
        number, *of_member = numbers
        member = next((each for each in self._members if each.number == number), None)
        if member is None or not of_member:
            return None
        answer = await self._ask(member, f"{SAMPLES}/{of_member[0]}")
        return Picture(answer.type, answer.body) if answer.good else None

    async def _ask_all(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> Sequence[_MemberAnswer]:
        return await asyncio.gather(*(self._ask(member, path, query) for member in self._members))

    async def _ask(
        self, member: MemberOnPage, path: str, query: Mapping[str, str] | None = None
    ) -> _MemberAnswer:
        if not member.running:
            return _MemberAnswer(member, False, "it does not run\n")
        try:
            async with self._session.get(member.url + path, params=query) as response:
                good, body = response.status == web.HTTPOk.status_code, await response.read()
                text = body.decode(errors="replace")
                return _MemberAnswer(member, good, text, body, response.content_type)
        except (aiohttp.ClientError, TimeoutError) as error:
            return _MemberAnswer(member, False, f"its page does not answer: {error!r}\n")


def _status(answer: _MemberAnswer) -> dict[str, Any]:
    member = {"process": answer.member.number, "restarts": answer.member.restarts}
    status = orjson.loads(answer.text) if answer.good else {"error": answer.text.strip()}
    return {**member, "up": answer.good, **status}


def _unavailable(answers: Iterable[_MemberAnswer]) -> Probe:
    return Probe(False, "".join(answer.line for answer in answers))


class _Merged(Collector):
    """Collects the metrics of all members; each sample gets the label `process`."""

    def __init__(self, answers: Sequence[_MemberAnswer]) -> None:
        self._answers = answers

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("penstock_process_up", "Does its page answer", labels=["process"])
        restarts = CounterMetricFamily(
            "penstock_process_restarts", "Starts after the first", labels=["process"]
        )
        families: dict[str, Metric] = {}
        for member, good, text, *_ in self._answers:
            process = str(member.number)
            up.add_metric([process], good)
            restarts.add_metric([process], member.restarts)
            # In Prometheus' format a metric has one HELP and one TYPE, before the samples of all
            # members.
            for metric in text_string_to_metric_families(text) if good else ():
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                family.samples += [
                    sample._replace(labels={**sample.labels, "process": process})
                    for sample in metric.samples
                ]
        return [up, restarts, *families.values()]
