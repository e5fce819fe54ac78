"""`penstock scenes`: checks the topics, then runs the engine; also creates the topics of scenes."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.client import telling_refusals
from penstock.adapters.kafka.topics import (
    TopicShape,
    create_topics,
    partition_counts,
    record_bytes,
)
from penstock.errors import usage
from penstock.ops.topic_checks import minding_credentials, warn_of_limits
from penstock.packages import missing_extra
from penstock.scenes.changelog import Fits
from penstock.scenes.engine import Engine
from penstock.scenes.ledger import SiteLedger
from penstock.scenes.page import scenes_page
from penstock.scenes.settings import Names, names, rules_of

log = logging.getLogger(__name__)

# Settings of the changelog. Only the last record of each site is needed, and a worker that takes
# over reads the whole topic, so Kafka should compact it soon. But each record must stay for a
# minute, because a worker that has lost a partition may still write a record to it, and the
# partition's new owner must see this record.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "60000",
    "min.compaction.lag.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}


async def run_scenes(cfg: config.Config) -> None:
    """Run until SIGTERM or Ctrl-C."""
    rules_of(cfg.scenes)
    make: Callable[[config.Config, Fits], _Engine]
    make = _faust() if cfg.scenes.engine == "faust" else Engine
    await check_topics(cfg)
    ours = names(cfg.scenes)
    await warn_of_limits(cfg.kafka, [ours.input], ours.by_site)
    engine = make(cfg, fitting(await record_bytes(cfg.kafka, names(cfg.scenes))))
    async with (
        telling_refusals(cfg.kafka),
        minding_credentials(replace(cfg.kafka, input_topic=ours.input)),
        scenes_page(cfg, engine.ledger) as url,
    ):
        log.info("scenes of %s to %s as group %s; %s", *_said(cfg.scenes), url)
        await engine.run()


class _Engine(Protocol):
    ledger: SiteLedger

    async def run(self) -> None: ...


def fitting(most_bytes: Mapping[str, int]) -> Fits:
    """A function that says whether a topic accepts a record. `most_bytes`: for each topic's name,
    the size of the largest record that the topic accepts.
    """
    return lambda topic, key, value_bytes: len(key) + value_bytes < most_bytes[topic]


def _faust() -> Callable[[config.Config, Fits], _Engine]:
    try:
        from penstock.scenes.faust_engine import FaustEngine  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise missing_extra('scenes.engine = "faust"', "scenes", error) from error
    return FaustEngine


def _said(scenes: config.Scenes) -> tuple[str, str, str]:
    return scenes.input_topic, scenes.topic, scenes.group


async def check_topics(cfg: config.Config) -> None:
    """Raises `Fatal` if topics are missing or do not fit."""
    ours = names(cfg.scenes)
    counts = await partition_counts(cfg.kafka, ours)
    missing = [topic for topic in ours if topic not in counts]
    if missing:
        raise usage(
            f"missing topics: {', '.join(missing)}; make them with: penstock topics create --scenes"
        )
    spread = counts[ours.by_site]
    if counts[ours.changelog] != spread:
        raise usage(
            f"{ours.by_site} has {spread} partitions and {ours.changelog} has "
            f"{counts[ours.changelog]}; they must have as many: stop the workers of group "
            f"{cfg.scenes.group}, and take another scenes.group, or make both topics anew"
        )


async def create_scenes_topics(
    cfg: config.Config, partitions: int, replication: int
) -> list[tuple[str, str]]:
    """Create the topics that are missing. The repartition topic and the changelog get the same
    number of partitions.
    """
    ours: Names = names(cfg.scenes)
    plain = [ours.input, ours.by_site, ours.scenes, ours.late]
    made = await create_topics(cfg.kafka, plain, TopicShape(partitions, replication))
    counts = await partition_counts(cfg.kafka, [ours.by_site])
    shape = TopicShape(counts.get(ours.by_site, partitions), replication, COMPACTED)
    return made + await create_topics(cfg.kafka, [ours.changelog], shape)
