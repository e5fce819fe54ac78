"""Opens a rekeyer from its configuration: beside a worker, or alone.

Rule: all rekeyers that write one topic are one group, however many groups of workers read it.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace
from prometheus_client.registry import Collector

from penstock import config
from penstock.adapters.inputs.kafka_sources import SingleOwnerSource
from penstock.adapters.kafka.client import telling_refusals
from penstock.adapters.kafka.exactly_once.transactions import open_transactions
from penstock.adapters.kafka.inside.producers import (
    BATCH_BYTES,
    RECORD_OVERHEAD_BYTES,
    times_mended,
)
from penstock.adapters.kafka.keyed_writer import hashed
from penstock.adapters.kafka.positions_from_outside import open_groups
from penstock.adapters.kafka.topics import most_bytes
from penstock.errors import usage
from penstock.failures.outage import until_answered
from penstock.ops.page.page import Page, PageSource, Probe
from penstock.ops.topic_checks import check_rekey, minding_credentials, warn_of_limits
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.process.signals import StopSignal
from penstock.settings.inputs import check_inputs, stream_from
from penstock.stages.rekey import Rekeyer, RekeyTerms
from penstock.telemetry.rekey import RekeyTelemetry, count_mended_times

log = logging.getLogger(__name__)

# How long a stop may take. A transaction that hangs from its begin to its end takes 30 s to
# publish, after a rest of 30 s if a broker throttles it, 3 s to abort and 2 s to stop. To ask for
# the topics' ends takes 5 s, to leave the group 2 s, and to close all connections 3 s. The rest
# is a margin.
LAST_RESORT_S = 90.0


async def run_rekey(cfg: config.Config) -> None:
    """Run alone until SIGTERM or Ctrl-C, then leave the group."""
    stop, telemetry = asyncio.Event(), RekeyTelemetry()
    count_mended_times(lambda: times_mended, telemetry.registry)
    page = Page(cfg.http, RekeySource(cfg.kafka, telemetry), document=None)
    with StopSignal(LAST_RESORT_S) as signals:
        async with (
            telling_refusals(cfg.kafka),
            open_rekeyer(cfg, telemetry) as rekeyer,
            minding_credentials(cfg.kafka),
            page.open(beside=True) as url,
        ):
            group = kafka_of_rekeyer(cfg).group
            log.info("%s to %s as group %s; %s", cfg.kafka.input_name, cfg.kafka.rekey, group, url)
            signals.then(stop.set)
            await rekeyer.run(stop)


@asynccontextmanager
async def open_rekeyer(cfg: config.Config, telemetry: RekeyTelemetry) -> AsyncIterator[Rekeyer]:
    """Opens a rekeyer. Kafka has answered by then, but the rekeyer does not run yet. The end of the
    block closes all that the rekeyer uses.
    """
    clock, kafka, topic = SystemClock(), kafka_of_rekeyer(cfg), topic_of(cfg)
    source, patience_s = (
        SingleOwnerSource(kafka, before=cfg.kafka.group),
        cfg.limits.start_ms / 1000,
    )
    async with stopped_after(source.stop):
        await until_answered("Kafka broker", partial(check_rekey, cfg), clock, patience_s)
        counts = await check_rekey(cfg)
        await warn_of_limits(cfg.kafka, cfg.kafka.inputs, topic)
        most = (await most_bytes(kafka, [topic]))[topic]
        terms = rekey_terms(
            cfg, partitions=counts[topic], record_bytes=most - RECORD_OVERHEAD_BYTES
        )
        # The group's name is the transactional id, so that a new leader fences the former one.
        batch_bytes = {topic: min(BATCH_BYTES, most)}
        begin = partial(open_transactions, kafka, kafka.group, clock, batch_bytes)
        # The ends are asked for on a connection of their own. On one connection the broker answers
        # in order, so on the reader's connection a question would wait for the read, which may take
        # half a second.
        async with open_groups(kafka, kafka.isolation) as groups:
            yield Rekeyer(source, begin, groups.ends, terms, clock, telemetry, random.random)


def group_of(kafka: config.Kafka) -> str:
    """The rekeyers' group, named after the topic that they write. If each group of workers had a
    group of rekeyers of its own, each message would be passed on once for each of these groups.
    """
    return f"{kafka.rekey}.rekey"


def kafka_of_rekeyer(cfg: config.Config) -> config.Kafka:
    """The `[kafka]` section of the rekeyer. It has no instance id: with one, a member that stands
    by could not go on at once when another member ends.
    """
    return replace(cfg.kafka, group=group_of(cfg.kafka), client="aiokafka", instance_id=None)


def rekey_terms(cfg: config.Config, *, partitions: int, record_bytes: int) -> RekeyTerms:
    """`partitions` and `record_bytes` are those of the topic that the rekeyer writes. Raises
    `Fatal` if settings contradict each other.
    """
    check_inputs(cfg)
    return RekeyTerms(
        topic=topic_of(cfg),
        partition_of=hashed(partitions),
        record_bytes=record_bytes,
        stream_from=stream_from(cfg.kafka.stream_from),
        wait_s=cfg.kafka.rekey_wait_ms / 1000,
        patience_s=cfg.kafka.timeout_ms / 1000,
    )


def topic_of(cfg: config.Config) -> str:
    if cfg.kafka.rekey is None:
        raise usage(
            "kafka.rekey names the topic that is keyed by stream, and is not set: write rekey = "
            '"TOPIC" in [kafka]'
        )
    return cfg.kafka.rekey


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
