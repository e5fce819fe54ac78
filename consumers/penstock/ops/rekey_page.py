"""What the page of a rekeyer that runs alone shows. It has no document for people."""

from typing import Any

from prometheus_client.registry import Collector

from penstock import config
from penstock.ops.page.page import PageSource, Probe
from penstock.telemetry.rekey import RekeyTelemetry


class RekeySource(PageSource):
    def __init__(self, kafka: config.Kafka, telemetry: RekeyTelemetry) -> None:
        self._kafka = kafka
        self._telemetry = telemetry

    async def ready(self) -> Probe:
        # A rekeyer that stands by counts as ready, because it takes over by itself when the leader
        # ends.
        return Probe(True, f"ready: {'rekeys' if self._telemetry.leads else 'stands by'}\n")

    async def metrics(self) -> Collector:
        return self._telemetry.registry

    async def status(self) -> dict[str, Any]:
        topics = {"input_topic": self._kafka.input_name, "topic": self._kafka.rekey}
        return {"v": 1, **topics, **self._telemetry.status}
