"""Opens the client that reads the input topics, as `kafka.client` says."""

from penstock import config
from penstock.adapters.kafka.group.membership import MemberSource
from penstock.adapters.kafka.source import KafkaSource
from penstock.packages import missing_extra


def open_source(
    settings: config.Kafka, *, drain_ms: int, leaves: bool = False, decided: bool = False
) -> MemberSource:
    """`leaves`: True if a member with an instance id leaves the group when it stops. `decided`:
    True if a position that an open transaction may still move is reported as `UNDECIDED`, for
    exactly once.
    """
    if settings.client == "aiokafka":
        return KafkaSource(settings, drain_ms=drain_ms, leaves=leaves, decided=decided)
    try:
        from penstock.adapters.confluent.source import (  # noqa: PLC0415 (an extra)
            ConfluentSource,
        )
    except ImportError as error:
        raise missing_extra('kafka.client = "confluent"', "confluent", error) from None
    return ConfluentSource(settings, drain_ms=drain_ms, leaves=leaves, decided=decided)
