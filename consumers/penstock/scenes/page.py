"""What the page of a scenes worker shows.

Rule: the counters of a site are part of its state, so the next worker that has the site goes on
counting from them.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from importlib import resources
from typing import Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock import config
from penstock.adapters.kafka.inside.producers import times_mended
from penstock.messages.scene import ClosedBy
from penstock.ops.http_server import NO_PARTITION
from penstock.ops.page.page import Page, PageSource, Probe, document_of
from penstock.scenes.ledger import SiteLedger

DOCUMENT: Final = document_of("penstock scenes", [resources.files(__package__).joinpath("page.js")])
# At most this many sites are shown by name: a sender may invent any number of names.
MOST_SITES = 1_000
STATES = ("present", "late", "gone")
CLOSED = get_args(ClosedBy)


class SiteMetrics(Collector):
    def __init__(self, ledger: SiteLedger) -> None:
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
        for what, count in self._ledger.keyed.totals.items():
            events.add_metric(["", what], count)
        for look in self._ledger.looks(MOST_SITES):
            site = look["site"]
            for what, count in look["counts"].items():
                (scenes if what in CLOSED else events).add_metric([site, what], count)
            for state in STATES:
                in_state = sum(each["state"] == state for each in look["members"])
                members.add_metric([site, state], in_state)
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


class ScenesSource(PageSource):
    def __init__(self, settings: config.Scenes, ledger: SiteLedger) -> None:
        self._settings = settings
        self._ledger = ledger

    async def ready(self) -> Probe:
        if not self._ledger.partitions:
            return Probe(False, NO_PARTITION)
        return Probe(True, f"ready: {len(self._ledger.partitions)} partitions\n")

    async def metrics(self) -> Collector:
        return SiteMetrics(self._ledger)

    async def status(self) -> dict[str, Any]:
        return {
            "v": 1,
            "input_topic": self._settings.input_topic,
            "output_topic": self._settings.topic,
            "partitions": sorted(self._ledger.partitions),
            "lost": self._ledger.keyed.judge(),
            "sites": list(self._ledger.looks(MOST_SITES)),
        }


def scenes_page(cfg: config.Config, ledger: SiteLedger) -> AbstractAsyncContextManager[str]:
    """Serve while the body runs; yields the URL. If `http.port` is taken, a free port is used,
    because `penstock run` and `penstock scenes` may share one configuration.
    """
    page = Page(cfg.http, ScenesSource(cfg.scenes, ledger), document=DOCUMENT)
    return page.open(beside=True)
