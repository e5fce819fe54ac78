"""One page for several workers, joined from the answers of their own pages.

Rule: every request is passed to all members' own pages, and no answer is kept. `/readyz` says that
the supervisor's workers are ready if all members run and reach the model, and if at least one of
them has partitions. One is enough: there may be more members than partitions, and then some members
wait in reserve.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import orjson
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from penstock import config
from penstock.adapters.http.running_worker import proving
from penstock.core.diagnosis.diagnose import diagnose
from penstock.ops.http_server import NO_PARTITION, as_json, exposition, paths, serving
from penstock.ops.page.actions import Actions
from penstock.ops.page.live_page import Live, page
from penstock.ops.page.one_object import SAMPLES, WAY, forgotten, gone, shown
from penstock.ops.page.whole_group import GroupPartitions, Peers

# A member's page waits for no service, so a member that takes longer than this to answer hangs.
ANSWER_S: Final = 2.0


class Member(Protocol):
    """The part of a supervisor's `Member` that the page needs."""

    @property
    def number(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    @property
    def url(self) -> str: ...

    @property
    def running(self) -> bool: ...


class Answer(NamedTuple):
    """A member's answer; if no answer came, `text` says why."""

    member: Member
    good: bool
    text: str
    body: bytes = b""
    kind: str = ""


@asynccontextmanager
async def serve_members(
    settings: config.Http,
    members: Sequence[Member],
    kafka: config.Kafka | None = None,
    actions: Actions | None = None,
) -> AsyncIterator[str]:
    """Serve while the body runs; yields the page's URL. `kafka`: the settings of the Kafka that the
    page asks for the partitions of the whole group.
    """
    async with aiohttp.ClientSession(
        # Connections are not kept: a kept one would be dead once its member was started again.
        connector=aiohttp.TCPConnector(force_close=True),
        middlewares=proving(settings.token),
        timeout=aiohttp.ClientTimeout(total=ANSWER_S),
    ) as session:

        async def ask_all(path: str, query: Mapping[str, str] | None = None) -> Sequence[Answer]:
            asked = (_ask(session, member, path, query) for member in members)
            return await asyncio.gather(*asked)

        async def healthz(_: web.Request) -> web.Response:
            answers = await ask_all("/healthz")
            bad = [answer for answer in answers if not answer.good]
            return _unavailable(bad) if bad else web.Response(text="ok\n")

        async def readyz(_: web.Request) -> web.Response:
            answers = await ask_all("/readyz")
            idle = [answer for answer in answers if answer.text == NO_PARTITION]
            bad = [answer for answer in answers if not answer.good and answer not in idle]
            if bad or len(idle) == len(members):
                return _unavailable(bad or idle)
            return web.Response(text="".join(map(_line, answers)))

        async def metrics(_: web.Request) -> web.Response:
            return exposition(_Merged(await ask_all("/metrics")))

        async def status() -> dict[str, Any]:
            whole = {"v": 1, "processes": list(map(_status, await ask_all("/api/status")))}
            return whole | {"problems": [one._asdict() for one in diagnose(whole)]}

        async def api_status(_: web.Request) -> web.Response:
            return as_json(await status())

        group, peers = GroupPartitions(kafka), Peers(settings)
        handlers = {} if actions is None or not settings.token else actions.handlers

        async def update() -> dict[str, Any]:
            return {
                "status": await status(),
                "group": group.look(),
                "actions": list(handlers),
                "peers": peers.look(),
                "samples": settings.samples,
            }

        async def samples(_: web.Request) -> web.Response:
            return as_json({"samples": list(_joined(await ask_all(SAMPLES)))})

        async def picture(request: web.Request) -> web.Response:
            number, path = int(request.match_info["process"]), request.match_info["sample"]
            member = next((one for one in members if one.number == number), None)
            if member is None:
                return gone()
            answer = await _ask(session, member, f"{SAMPLES}/{path}")
            return shown(answer.kind, answer.body) if answer.good else gone()

        async def way(request: web.Request) -> web.Response:
            answers = await ask_all(WAY, request.query)
            told = [orjson.loads(one.body) for one in answers if one.good]
            return as_json(told[0]) if told else forgotten()

        live = Live(update)
        pages = paths(page, readyz, metrics, api_status, healthz, live=live.serve) | {WAY: way}
        if settings.samples:
            pages |= {SAMPLES: samples, SAMPLES + r"/{process:\d{1,4}}/{sample:\d{1,15}}": picture}
        async with (
            group.watching(),
            peers.watching(),
            serving(settings, pages, actions=handlers) as url,
            live.open(),
        ):
            yield url


async def _ask(
    session: aiohttp.ClientSession,
    member: Member,
    path: str,
    query: Mapping[str, str] | None = None,
) -> Answer:
    if not member.running:
        return Answer(member, False, "it does not run\n")
    try:
        async with session.get(member.url + path, params=query) as response:
            good, body = response.status == web.HTTPOk.status_code, await response.read()
            text = body.decode(errors="replace")
            return Answer(member, good, text, body, response.content_type)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(member, False, f"its page does not answer: {error!r}\n")


def _joined(answers: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """The samples of all members, each with the path of its picture on this page."""
    for answer in answers:
        number = answer.member.number
        for one in orjson.loads(answer.body)["samples"] if answer.good else ():
            has_picture = one["picture"] is not None
            path = f"{SAMPLES}/{number}/{one['number']}" if has_picture else None
            yield {**one, "process": number, "picture": path}


def _line(answer: Answer) -> str:
    return f"process {answer.member.number}: {answer.text}"


def _status(answer: Answer) -> dict[str, Any]:
    member = {"process": answer.member.number, "restarts": answer.member.restarts}
    status = orjson.loads(answer.text) if answer.good else {"error": answer.text.strip()}
    return {**member, "up": answer.good, **status}


def _unavailable(answers: Iterable[Answer]) -> web.Response:
    return web.Response(status=503, text="".join(map(_line, answers)))


class _Merged:
    """Collects the metrics of all members; each sample gets the label `process`. Implements
    `Collector`.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
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
            for found in text_string_to_metric_families(text) if good else ():
                family = families.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type)
                )
                family.samples += [
                    sample._replace(labels={**sample.labels, "process": process})
                    for sample in found.samples
                ]
        return [up, restarts, *families.values()]
