"""A Kafka broker inside this process: librdkafka's mock cluster, for the demo and for tests.

Rule: it serves a single member of a group, and creates a topic when it is first used. It keeps the
latest 5 MB of a partition, so a reader that needs all records must read while the topic grows. As a
program it prints its address on the first line.
"""

import asyncio
from typing import Any, Final, Self

from penstock.packages import missing_extra
from penstock.process.signals import serve_until_asked

# librdkafka's default for topics of its mock cluster; there is no setting for it.
PARTITIONS: Final = 4
START_TIMEOUT_S: Final = 10.0


class EmbeddedBroker:
    """Use it as `with EmbeddedBroker() as broker:`, and connect to `broker.bootstrap_servers`."""

    def __init__(self) -> None:
        self.bootstrap_servers = ""
        self._cluster: Any = None

    def __enter__(self) -> Self:
        try:
            from confluent_kafka import Producer  # noqa: PLC0415 (an extra: only the demo has it)
        except ImportError as error:
            raise missing_extra("the embedded broker", "demo", error) from None
        # The cluster runs in the threads of this client and ends with it.
        self._cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._cluster.list_topics(timeout=START_TIMEOUT_S).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster = None


async def _serve() -> None:
    with EmbeddedBroker() as broker:
        await serve_until_asked(broker.bootstrap_servers)


if __name__ == "__main__":
    asyncio.run(_serve())
