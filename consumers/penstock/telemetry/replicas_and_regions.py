"""Metrics of the replicas that gave objects and answers, and of regions.

Rule: a region's bytes are the sum of its stores' bytes, computed when the metrics are read.
"""

import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from penstock.telemetry.metric_types import TotalBy, TotalByTwo

# What became of a second request, as `core.health.retries` names it.
HEDGED = ("won", "lost", "resumed")
# Stands for the region of stores that belong to no region.
ELSEWHERE = "elsewhere"


class ReplicasTelemetry:
    """Counts the bytes that each store with replicas gave; in a worker of a region, the bytes of
    each store. Also counts how often a replica was asked instead of a store or a model server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bytes_by_store = TotalBy(
            "penstock_store_bytes",
            "Bytes of stores with replicas, in a region of all, by the one that gave them",
            "store",
            registry,
        )
        self._stores_left = TotalBy(
            "penstock_store_failovers",
            "Times that a replica was asked because this store did not answer",
            "store",
            registry,
        )
        self._servers_left = TotalBy(
            "penstock_model_failovers",
            "Times that a replica took over because this server was unavailable or failing",
            "endpoint",
            registry,
        )

        self.hedged = TotalByTwo(
            "penstock_hedged_reads",
            "Late reads of a store that were sent again, by what became of the second read",
            ("store", "outcome"),
            registry,
            HEDGED,
        )
        self._hedged_calls = TotalBy(
            "penstock_hedged_calls",
            "Late calls of a model that were sent to a second server, by whether it answered first",
            "outcome",
            registry,
        )

    def store_read(self, store: str, nbytes: int) -> None:
        self.bytes_by_store.inc(store, nbytes)

    def store_failed_over(self, store: str) -> None:
        self._stores_left.inc(store)

    def model_failed_over(self, endpoint: str) -> None:
        self._servers_left.inc(endpoint)

    def model_hedged(self, outcome: str) -> None:
        self._hedged_calls.inc(outcome)

    def failovers(self) -> dict[str, float]:
        """For each store or model server that did not answer: how often a replica was asked
        instead.
        """
        return {**self._stores_left.totals, **self._servers_left.totals}


class RegionTelemetry(Collector):
    """The metrics that only a worker in a region has. `name`: the worker's own region. `region_of`:
    for each store's name, its region.
    """

    def __init__(
        self,
        name: str,
        region_of: Mapping[str, str],
        bytes_by_store: TotalBy,
        registry: CollectorRegistry,
    ) -> None:
        self.name = name
        self._region_of = region_of
        self._bytes_by_store = bytes_by_store
        self._created_s = time.time()
        registry.register(self)
        local_share = Gauge(
            "penstock_region_local_share",
            "Of the bytes of objects those that this worker's own region gave",
            ["region"],
            registry=registry,
        )
        local_share.labels(name).set_function(self.local_share)
        self._lag = Gauge(
            "penstock_region_lag_records",
            "Records that a region's group has not committed, of those that may be helped",
            ["region"],
            registry=registry,
        )
        self._helped = Gauge(
            "penstock_region_helped",
            "1 while this worker helps the region",
            ["region"],
            registry=registry,
        )

    def bytes_by_region(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for store, total in self._bytes_by_store.totals.items():
            region = self._region_of.get(store, ELSEWHERE)
            totals[region] = totals.get(region, 0) + int(total)
        return totals

    def local_share(self) -> float:
        """The share of the read bytes that came from the worker's own region; 1 if nothing was read
        yet.
        """
        totals = self.bytes_by_region()
        total = sum(totals.values())
        return totals.get(self.name, 0) / total if total else 1.0

    def seen(self, region: str, lag: int | None, *, is_helped: bool) -> None:
        """Show the state of another region. `lag`: how many records the region's group has not
        committed; None if Kafka did not tell.
        """
        if lag is not None:
            self._lag.labels(region).set(lag)
        self._helped.labels(region).set(is_helped)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "penstock_region_bytes",
            "Bytes of objects by the region whose store gave them",
            labels=["region"],
        )
        for region, total in self.bytes_by_region().items():
            family.add_metric([region], total, created=self._created_s)
        yield family
