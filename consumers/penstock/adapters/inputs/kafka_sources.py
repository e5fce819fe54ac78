"""Opens the sources that read from Kafka: of a worker's own group, of one that also helps other
regions, and of the rekeyer, in whose group one member reads everything.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec.structs import replace

from penstock import config
from penstock.adapters.inputs.regional_source import RegionalSource
from penstock.adapters.kafka.group.assignors import OneOwner
from penstock.adapters.kafka.group.membership import GroupMember, MemberSource
from penstock.adapters.kafka.group.observed import GroupStanding
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.positions import positions
from penstock.adapters.kafka.source import KafkaSource
from penstock.core.health.other_groups import RegionState
from penstock.core.window.gathering import Gather
from penstock.packages import missing_extra
from penstock.ports import Commit, Record, Where
from penstock.process.cpu import BusyShare

# The client id of a worker that helps begins with this. All other members are the group's own
# workers.
HELPER: Final = "penstock-help"
# How long a rebalance of the rekeyer's group may wait for the end of the open transaction.
REKEYER_DRAIN_MS: Final = 5_000


def open_source(
    settings: config.Kafka, *, drain_ms: int, leaves: bool = False, decided: bool = False
) -> MemberSource:
    """`leaves`: True if a member with an instance id leaves the group when it stops. `decided`: an
    open transaction may still move a position. If True, the source reports such a position as
    `UNDECIDED`; workers with exactly-once delivery need that.
    """
    gather = Gather(BusyShare().share, in_pauses=settings.client != "aiokafka")
    if settings.client == "aiokafka":
        return KafkaSource(
            settings, drain_ms=drain_ms, leaves=leaves, decided=decided, gather=gather
        )
    try:
        from penstock.adapters.confluent.source import (  # noqa: PLC0415 (an extra)
            ConfluentSource,
        )
    except ImportError as error:
        raise missing_extra('kafka.client = "confluent"', "confluent", error) from None
    return ConfluentSource(
        settings, drain_ms=drain_ms, leaves=leaves, decided=decided, gather=gather
    )


class KafkaRegions(RegionalSource):
    """The sources of a worker that also helps the regions of `cfg.helped`. One client asks for
    the lag and the workers of all groups.
    """

    def __init__(self, cfg: config.Config, *, leaves: bool) -> None:
        # When a helper leaves a group, its partitions must move at once. So it has no instance id
        # in the groups that it helps.
        self._kafka = {
            name: replace(config.kafka_of(cfg, name), instance_id=None) for name in cfg.helped
        }
        self._own_kafka, self._client_id = cfg.kafka, f"{HELPER}-{cfg.region}"
        self._drain_ms = cfg.delivery.drain_ms
        self._standing = GroupStanding(cfg.kafka, HELPER)
        region_of = {
            topic: name for name, settings in self._kafka.items() for topic in settings.inputs
        }
        self._decided = cfg.delivery.guarantee == "exactly_once"
        own = KafkaSource(
            cfg.kafka,
            drain_ms=self._drain_ms,
            leaves=leaves,
            decided=self._decided,
            gather=Gather(BusyShare().share),
        )
        self._members_by_region: dict[str | None, KafkaSource] = {None: own}
        self._region_by_topic = region_of
        super().__init__(own, self._member, region_of, self._stands)
        self.groups: Mapping[str, str] = {
            topic: self._kafka[name].group for topic, name in region_of.items()
        }

    def member_of(self, topic: str) -> GroupMember:
        """This worker's membership in the group that reads this topic. If the worker has left the
        topic's region, the generation is below 0.
        """
        return self._members_by_region[self._region_by_topic.get(topic)].member_of(topic)

    def _member(self, region: str) -> KafkaSource:
        member = self._members_by_region[region] = KafkaSource(
            self._kafka[region],
            drain_ms=self._drain_ms,
            client_id=self._client_id,
            decided=self._decided,
            gather=Gather(BusyShare().share),
        )
        return member

    async def _stands(self, region: str | None) -> RegionState:
        return await self._standing.of(self._own_kafka if region is None else self._kafka[region])

    async def aclose(self) -> None:
        await self._standing.stop()


class SingleOwnerSource(KafkaSource):
    """The source of the rekeyer. One member of the group gets all partitions, because only a member
    that reads all of them can put their records in order. The source leaves the value and the
    headers of each record as they are.

    `before`: the group of the workers, which read these topics until now. In a partition in which
    our group has no position yet, the position of that group is used.
    """

    assignor = OneOwner

    def __init__(self, settings: config.Kafka, *, before: str) -> None:
        # `decided`, because a former owner's transaction may have ended although its positions do
        # not count yet.
        super().__init__(settings, drain_ms=REKEYER_DRAIN_MS, decided=True)
        self._before = before

    @staticmethod
    def record(where: Where, message: Any) -> Record:
        return Record(
            where,
            message.offset,
            message.key,
            message.value,
            message.timestamp,
            headers=message.headers,
        )

    async def group_positions(self, wanted: Collection[Where]) -> Mapping[Where, Commit | None]:
        by_part = dict(await super().group_positions(wanted))
        fresh = [where for where, commit in by_part.items() if commit is None]
        if fresh:
            former = await positions(client_of(self._consumer), self._before, fresh)
            # Only the offset is taken over. The metadata would tell which rows of a record the
            # workers have answered already; the workers will answer these rows again.
            by_part |= {
                where: commit and Commit(commit.next_offset) for where, commit in former.items()
            }
        return by_part
