"""Metrics of stores and model servers with replicas: bytes read, and failovers.

Rule: one count per read, and one per change from one replica to another. Owner: the worker's
telemetry; the adapters that choose among replicas call it.
"""

from prometheus_client import CollectorRegistry

from penstock.telemetry.counters import TotalBy


class ReplicasTelemetry:
    """Counts for every store with replicas; in a region, for all stores."""

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

    def store_read(self, store: str, nbytes: int) -> None:
        self.bytes_by_store.inc(store, nbytes)

    def store_failed_over(self, store: str) -> None:
        self._stores_left.inc(store)

    def model_failed_over(self, endpoint: str) -> None:
        self._servers_left.inc(endpoint)

    def failovers(self) -> dict[str, float]:
        """Failovers by the store or model server that was left."""
        return {**self._stores_left.totals, **self._servers_left.totals}
