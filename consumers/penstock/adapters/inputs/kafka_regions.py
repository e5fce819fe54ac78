"""The consumer groups of several regions on Kafka.

Rule: the sources of all regions share one numbering of partitions, and one client asks for the lag
and the workers of all groups. Owner: the application.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from penstock import config
from penstock.adapters.inputs.regional_source import RegionalSource
from penstock.adapters.kafka.assigned_partitions import Numbers
from penstock.adapters.kafka.group.lag_and_owners import GroupStanding
from penstock.adapters.kafka.group.membership import GroupMember
from penstock.adapters.kafka.source import KafkaSource
from penstock.core.health.region_help import RegionState

# Client ids of helping workers begin with this; all other members are the group's own workers.
HELPER: Final = "penstock-help"


class KafkaRegions(RegionalSource):
    """The sources of a worker that also helps the regions of `cfg.helped`."""

    def __init__(self, cfg: config.Config, *, leaves: bool) -> None:
        # A helper has no instance id in the groups that it helps: when it leaves, its partitions
        # must move at once.
        self._kafka = {
            name: replace(config.kafka_of(cfg, name), instance_id=None) for name in cfg.helped
        }
        self._own_kafka, self._client_id = cfg.kafka, f"{HELPER}-{cfg.region}"
        self._drain_ms = cfg.delivery.drain_ms
        self._numbers = Numbers(cfg.all_inputs)
        self._standing = GroupStanding(cfg.kafka, HELPER)
        region_of = {topic: name for name, one in self._kafka.items() for topic in one.inputs}
        self._decided = cfg.delivery.guarantee == "exactly_once"
        own = KafkaSource(
            cfg.kafka,
            drain_ms=self._drain_ms,
            numbers=self._numbers,
            leaves=leaves,
            decided=self._decided,
        )
        self._members_by_region: dict[str | None, KafkaSource] = {None: own}
        self._region_by_topic = region_of
        super().__init__(own, self._member, region_of, self._stands)
        self.groups: Mapping[str, str] = {
            topic: self._kafka[name].group for topic, name in region_of.items()
        }

    def member_of(self, topic: str) -> GroupMember:
        """Who this worker is to the group that reads this topic. For a region that the worker has
        left, the generation is below 0.
        """
        return self._members_by_region[self._region_by_topic.get(topic)].member_of(topic)

    def _member(self, region: str) -> KafkaSource:
        member = self._members_by_region[region] = KafkaSource(
            self._kafka[region],
            drain_ms=self._drain_ms,
            numbers=self._numbers,
            client_id=self._client_id,
            decided=self._decided,
        )
        return member

    async def _stands(self, region: str | None) -> RegionState:
        return await self._standing.of(self._own_kafka if region is None else self._kafka[region])

    async def aclose(self) -> None:
        await self._standing.stop()
