"""Measures how long a rebalance takes, and what it costs, in a group of many members without work
on a real broker.

Rule: a member is a worker's source, with the worker's assignor and connections, on an empty topic.
All members are in this process, so the CPU and memory of this process are those of the members.
Owner: `scripts/fleet`.
"""

import asyncio
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping

from chaos_run.services_under_test import environ_of
from fleet_run.common import Figure, tell
from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.adapters.kafka.topics import TopicShape, create_topics, delete_topics
from penstock.errors import Fatal
from penstock.ports import Commit, InputSource, Where
from penstock.tools.bench.resource_use import cpu_by_name, service_pids, usage

WAIT_S = 120.0
LOOK_S = 0.02
IDLE_S = 10.0
APART_S = 0.1
DRAIN_MS = 2_000


class _Member:
    """A member. `ours`: its partitions now. `moved`: shared by all members; counts each partition
    that comes to a member.
    """

    def __init__(self, source: InputSource, moved: Counter[Where]) -> None:
        self.source = source
        self.ours: set[Where] = set()
        self._moved = moved

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self._moved.update(starts.keys() - self.ours)
        self.ours = set(starts)
        return {}

    async def suspended(self, partitions: Collection[Where]) -> None:
        """Nothing to do: a member without work has nothing in progress."""

    async def revoked(self, partitions: Collection[Where]) -> None:
        self.ours -= set(partitions)

    async def run(self) -> None:
        try:
            await self.source.start(self)
            while True:
                await self.source.poll(list(self.ours), 200)
        finally:
            await self.source.stop()


class _Group:
    def __init__(self, kafka: config.Kafka, tasks: asyncio.TaskGroup) -> None:
        self._kafka, self._tasks = kafka, tasks
        self._members: dict[_Member, asyncio.Task[None]] = {}
        self.moved: Counter[Where] = Counter()

    def join(self) -> None:
        one = _Member(open_source(self._kafka, drain_ms=DRAIN_MS), self.moved)
        self._members[one] = self._tasks.create_task(one.run())

    async def leave(self) -> None:
        _, task = self._members.popitem()
        task.cancel()
        await asyncio.wait([task])

    def end(self) -> None:
        for task in self._members.values():
            task.cancel()

    async def even(self, partitions: int) -> None:
        """Wait until every member has an even share of all partitions."""
        share = partitions / len(self._members)
        async with asyncio.timeout(WAIT_S):
            while not self._is_even(partitions, share):
                await asyncio.sleep(LOOK_S)

    def _is_even(self, partitions: int, share: float) -> bool:
        owned = [member.ours for member in self._members]
        return len(set[Where]().union(*owned)) == sum(map(len, owned)) == partitions and all(
            abs(len(one) - share) < 1 for one in owned
        )


async def measured(members: int, partitions: int) -> list[Figure]:
    name = f"fleet-{uuid.uuid4().hex[:8]}"
    cfg = config.load(environ=environ_of({"KAFKA__INPUT_TOPIC": name, "KAFKA__GROUP": name}))
    await create_topics(cfg.kafka, [name], TopicShape(partitions))
    try:
        return await _measured(cfg, members, partitions)
    finally:
        await delete_topics(cfg.kafka, [name])


async def _measured(cfg: config.Config, members: int, partitions: int) -> list[Figure]:
    # At each rebalance every member logs some lines.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    pids = service_pids(cfg)
    if "kafka" not in pids:
        raise Fatal("the broker is not the stack's, so its CPU is not known (scripts/stack up)")
    broker = {"kafka": pids["kafka"], "members": os.getpid()}
    bare = usage(os.getpid()).peak_rss_bytes
    found: list[Figure] = []
    async with asyncio.TaskGroup() as tasks:
        group = _Group(cfg.kafka, tasks)
        try:
            for step, joining in (
                (f"{members} members join", members),
                ("one more joins", 1),
                ("one leaves", 0),
            ):
                before, moved = cpu_by_name(broker), group.moved.total()
                begun_s = time.monotonic()
                for _ in range(joining):
                    group.join()
                    # All members share one core, and a hundred starts at once would keep this core
                    # busy for seconds.
                    await asyncio.sleep(APART_S)
                if not joining:
                    await group.leave()
                await group.even(partitions)
                took_s = time.monotonic() - begun_s
                found += tell(
                    Figure(f"{step}: until all have an even share", took_s, "s"),
                    Figure(f"{step}: partitions that moved", group.moved.total() - moved, ""),
                    *_cpu(step, before, cpu_by_name(broker)),
                )
            before = cpu_by_name(broker)
            await asyncio.sleep(IDLE_S)
            idle = _cpu(f"{IDLE_S:.0f} s at rest", before, cpu_by_name(broker))
            memory = (usage(os.getpid()).peak_rss_bytes - bare) / 1e6
            found += tell(*idle, Figure("memory of all members", memory, "MB"))
        finally:
            group.end()
    return found


def _cpu(step: str, before: Mapping[str, float], after: Mapping[str, float]) -> list[Figure]:
    return [
        Figure(f"{step}: CPU of the broker", after["kafka"] - before["kafka"], "s"),
        Figure(f"{step}: CPU of the members", after["members"] - before["members"], "s"),
    ]
