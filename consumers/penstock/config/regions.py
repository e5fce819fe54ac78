"""Applies `[regions.NAME]` to the other sections, which gives the configuration of that region's
workers: its topics, read by a group of its own, and its model servers before those that it falls
back on.
"""

import re

from msgspec.structs import replace

from penstock.config.all_sections import Config
from penstock.config.model_sections import Model
from penstock.config.sections import Kafka, Region
from penstock.config.unknown_keys import nearest
from penstock.errors import usage


def in_region(cfg: Config) -> Config:
    """The configuration for the workers of `cfg.region`. Raises `Fatal` for regions that do not fit
    together.
    """
    _check(cfg)
    if cfg.region is None:
        return cfg
    region = cfg.regions[cfg.region]
    others = [cfg.regions[name] for name in region.fallback]
    return replace(
        cfg,
        kafka=_kafka(cfg.kafka, cfg.region, region),
        model=_model(cfg.model, region, others),
    )


def kafka_of(cfg: Config, name: str) -> Kafka:
    """The Kafka section for the workers of region `name`. `cfg`: a configuration that `in_region`
    has made already.
    """
    group = cfg.kafka.group.removesuffix(f"-{cfg.region}")
    return _kafka(replace(cfg.kafka, group=group), name, cfg.regions[name])


def _kafka(kafka: Kafka, name: str, region: Region) -> Kafka:
    """The Kafka section of a region. Each region gets a group of its own, so that a rebalance in
    one region does not stop other regions.
    """
    kafka = replace(kafka, group=f"{kafka.group}-{name}")
    if region.topics is None:
        return kafka
    several = region.topics if len(region.topics) > 1 else None
    return replace(kafka, input_topic=region.topics[0], input_topics=several, input_pattern=None)


def _model(model: Model, region: Region, others: list[Region]) -> Model:
    near = region.models or [model.url, *(model.replicas or ())]
    urls = dict.fromkeys([*near, *(url for other in others for url in other.models or ())])
    url, *replicas = urls
    return replace(model, url=url, replicas=replicas or None)


def _check(cfg: Config) -> None:
    if cfg.region is not None and cfg.region not in cfg.regions:
        raise usage(f"region: there is no [regions.{cfg.region}]{nearest(cfg.region, cfg.regions)}")
    owners: dict[tuple[str, str], str] = {}
    for name, region in cfg.regions.items():
        where = f"regions.{name}"
        for other in region.fallback:
            if other == name or other not in cfg.regions:
                raise usage(f"{where}.fallback: there is no other region {other}")
            if cfg.regions[other].topics is None:
                raise usage(f"regions.{other}.topics: {name} helps there, and must know them")
        stores = ["objects", *cfg.stores]
        for store in region.stores or ():
            if store not in stores:
                raise usage(f"{where}.stores: there is no store {store}{nearest(store, stores)}")
        things = [("topic", topic) for topic in region.topics or ()]
        things += [("store", name) for name in region.stores or ()]
        for thing in things:
            if (owner := owners.setdefault(thing, name)) != name:
                raise usage(f"{where}: {thing[1]} is that of regions.{owner} already")
        if name == cfg.region and region.topics is None:
            _check_inputs(cfg, region)


def _check_inputs(cfg: Config, region: Region) -> None:
    """A topic has one owner, so what is read here is not that of a region that is helped."""
    pattern = re.compile(cfg.kafka.input_pattern) if cfg.kafka.input_pattern else None
    for other in region.fallback:
        for topic in cfg.regions[other].topics or ():
            if topic in cfg.kafka.inputs or (pattern is not None and pattern.match(topic)):
                raise usage(
                    f"regions.{cfg.region}.topics: {topic} is that of regions.{other}, and is read "
                    "here, too; name this region's own topics"
                )
