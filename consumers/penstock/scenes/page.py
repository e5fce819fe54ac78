"""The page of a scenes worker. `/healthz`, `/readyz`, `/metrics` and `/api/status` are for
machines; `/` is for people.

Rule: the page changes nothing, and its figures are collected at each request. The counters of a
site are part of its state, so the next worker that has the site goes on counting from them. Owner:
the command.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, Final, get_args

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock import config
from penstock.adapters.kafka.inside.refusals import times_mended
from penstock.messages.scene import ClosedBy
from penstock.ops.http_server import NO_PARTITION, as_json, exposition, paths, serving_beside
from penstock.ops.page.live_page import Live, document_of, handler_of
from penstock.scenes.ledger import Ledger

DOCUMENT: Final = document_of("penstock scenes", [resources.files(__package__).joinpath("page.js")])
# At most this many sites are shown by name: a sender may invent any number of names.
MOST_SITES = 1_000
STATES = ("present", "late", "gone")
CLOSED = get_args(ClosedBy)


class SiteMetrics(Collector):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        scenes = CounterMetricFamily(
            "penstock_scenes", "Scenes by the reason for closing", labels=["site", "closed_by"]
        )
        events = CounterMetricFamily(
            "penstock_scenes_predictions",
            "Predictions that arrived, and what became of those that are in no scene",
            labels=["site", "what"],
        )
        members = GaugeMetricFamily(
            "penstock_scenes_members", "Members by state", labels=["site", "state"]
        )
        waiting = GaugeMetricFamily(
            "penstock_scenes_open", "Scenes that are not decided", labels=["site"]
        )
        skews = GaugeMetricFamily(
            "penstock_scenes_skew_milliseconds",
            "A member's time less its scene's, averaged",
            labels=["site", "member"],
        )
        for look in self._ledger.looks(MOST_SITES):
            site = look["site"]
            for what, count in look["counts"].items():
                (scenes if what in CLOSED else events).add_metric([site, what], count)
            for state in STATES:
                found = sum(each["state"] == state for each in look["members"])
                members.add_metric([site, state], found)
            waiting.add_metric([site], look["open"])
            for each in look["members"]:
                if each["skew_ms"] is not None:
                    skews.add_metric([site, each["member"]], each["skew_ms"])
        mended = CounterMetricFamily(
            "penstock_record_times_mended",
            "Records that got another time, because their topic did not take their own",
            value=sum(times_mended.values()),
        )
        yield from (scenes, events, members, waiting, skews, mended)


@asynccontextmanager
async def serve_scenes(cfg: config.Config, ledger: Ledger) -> AsyncIterator[str]:
    """Serve while the body runs; yields the URL. If `http.port` is taken, a free port is used,
    because `penstock run` and `penstock scenes` may share one configuration.
    """
    registry = CollectorRegistry()
    registry.register(SiteMetrics(ledger))

    async def readyz(_: web.Request) -> web.Response:
        if not ledger.partitions:
            return web.Response(status=503, text=NO_PARTITION)
        return web.Response(text=f"ready: {len(ledger.partitions)} partitions\n")

    async def metrics(_: web.Request) -> web.Response:
        return exposition(registry)

    def look() -> dict[str, Any]:
        return {
            "v": 1,
            "input_topic": cfg.scenes.input_topic,
            "output_topic": cfg.scenes.topic,
            "partitions": sorted(ledger.partitions),
            "sites": list(ledger.looks(MOST_SITES)),
        }

    async def status(_: web.Request) -> web.Response:
        return as_json(look())

    async def update() -> dict[str, Any]:
        return {"status": look()}

    live = Live(update)
    pages = paths(handler_of(DOCUMENT), readyz, metrics, status, live=live.serve)
    async with serving_beside(cfg.http, pages) as url, live.open():
        yield url
