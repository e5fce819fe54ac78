"""The counts of the rekeyer."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.telemetry.metric_types import TotalBy, TotalOf

# Only `ignored` messages are not passed on. A message that is `split`, `late`, `cut` or
# `unforeseen` counts as `passed`, too.
KINDS = ("passed", "ignored", "split", "late", "cut", "unforeseen")


class RekeyTelemetry(Collector):
    """`registry`: the worker's registry, if the rekeyer runs in a worker. The rekeyer sets two
    attributes. `leads`: True while this process rekeys. `backlog`: a function that gives the number
    of messages that are not passed on yet.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = registry or CollectorRegistry()
        self._messages = TotalBy(
            "penstock_rekey_messages",
            "Messages of the input topics by what became of them",
            "what",
            registry,
            KINDS,
        )
        self.backlog: Callable[[], int] = int
        self.leads = False
        registry.register(self)

    def count(self, what: str) -> None:
        self._messages.inc(what)

    def unforeseen(self, _: str) -> None:
        self.count("unforeseen")

    @property
    def totals(self) -> dict[str, int]:
        return {what: int(total) for what, total in self._messages.totals.items()}

    @property
    def status(self) -> dict[str, Any]:
        """The figures of the rekeyer in `/api/status`."""
        return {"leads": self.leads, "backlog": self.backlog(), "messages": self.totals}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "penstock_rekey_leads", "1 if this process rekeys, 0 if it stands by", self.leads
        )
        yield GaugeMetricFamily(
            "penstock_rekey_backlog",
            "Messages of the input topics that are not passed on yet",
            self.backlog(),
        )


def count_mended_times(
    mended: Callable[[], Mapping[str, int]], registry: CollectorRegistry
) -> None:
    """`mended`: a function that tells for each topic how many records got another time."""
    TotalOf(
        "penstock_record_times_mended",
        "Records that got another time, because their topic did not take their own",
        lambda: sum(mended().values()),
        registry,
    )
