"""Translates what the rekeyer needs.

Rule: all rekeyers that write one topic are one group, however many groups of workers read that
topic. All other settings are those of the workers. Owner: the worker, or the command that starts
the rekeyer.
"""

from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.keyed_writers import hashed
from penstock.errors import usage
from penstock.settings.inputs import check_inputs, stream_from
from penstock.stages.rekey import RekeyTerms


def group_of(kafka: config.Kafka) -> str:
    """The rekeyers' group, named after the topic that they write. If the rekeyers of each group of
    workers had a group of their own, each message would be passed on once for each group.
    """
    return f"{kafka.rekey}.rekey"


def kafka_of_rekeyer(cfg: config.Config) -> config.Kafka:
    """The `[kafka]` section of the rekeyer. It has no instance id, because if a member ends, one
    that stands by must go on at once.
    """
    return replace(cfg.kafka, group=group_of(cfg.kafka), client="aiokafka", instance_id=None)


def rekey_terms(cfg: config.Config, *, partitions: int, record_bytes: int) -> RekeyTerms:
    """`partitions` and `record_bytes` are those of the topic that is written. Raises `Fatal` for
    settings that contradict each other.
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
