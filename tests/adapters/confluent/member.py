"""A member of the group by `doubles.Consumer`, with a group and lanes that note what they hear.

Owner: the tests.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock import config
from penstock.adapters.confluent import consumer_thread, source
from penstock.adapters.confluent.source import ConfluentSource
from penstock.ports import Commit, Record, Where
from tests.adapters.confluent.doubles import Consumer
from tests.support.partitions import by_number
from tests.support.waiting import DEADLINE_S


class Group:
    """`at`: its positions; others have none. `ids`: those of the topics."""

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}
        self.at: dict[Where, Commit] = {}
        self.looks = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ask(self) -> None: ...

    async def terms(self) -> None: ...

    async def partitions(self, topics: Collection[str]) -> int:
        return 4

    async def committed(self, partitions: Collection[Where]) -> Mapping[Where, Commit | None]:
        return {where: self.at.get(where) for where in partitions}

    async def topic_ids(self, partitions: Iterable[Where]) -> Mapping[str, bytes]:
        return self.ids

    async def look_for_abandoned(self) -> None:
        self.looks += 1


class Lanes:
    """`kept`: the offsets from which suspended partitions go on. While `may_suspend` is not set, a
    rebalance lasts.
    """

    def __init__(self) -> None:
        self.said: list[tuple[str, set[int]]] = []
        self.kept: dict[Where, int] = {}
        self.may_suspend = asyncio.Event()
        self.may_suspend.set()

    async def suspended(self, partitions: Collection[Where]) -> None:
        self.said.append(("suspended", {partition.partition for partition in partitions}))
        await self.may_suspend.wait()

    async def revoked(self, partitions: Collection[Where]) -> None:
        self.said.append(("revoked", {partition.partition for partition in partitions}))

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.said.append(("assigned", {start.partition for start in starts}))
        return {one: at for one, at in self.kept.items() if one in starts}


class Member:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: config.Kafka) -> None:
        self.consumer, self.group, self.lanes = Consumer(), Group(), Lanes()
        monkeypatch.setattr(consumer_thread, "Consumer", self._made)
        monkeypatch.setattr(source, "GroupPositions", lambda *_, **__: self.group)
        self.source = ConfluentSource(settings, drain_ms=1_000)

    def _made(self, options: Mapping[str, Any]) -> Consumer:
        if "oauth_cb" in options:
            options["oauth_cb"]("")
        return self.consumer

    async def polls(self, is_done: Callable[[], object], *wanted: Where) -> list[Record]:
        """Poll until it is so, at least once. Returns what was read."""
        found: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found += await self.source.poll(wanted, 5)
                if is_done():
                    return found

    @property
    def reached(self) -> dict[int, int]:
        return by_number(self.source.reached())

    async def is_assigned(self, *numbers: int) -> None:
        self.consumer.calls_back("on_assign", *numbers)
        await self.polls(lambda: self.consumer.held.keys() == set(numbers))


@asynccontextmanager
async def member(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Member]:
    one = Member(monkeypatch, config.Kafka(**({"input_topic": "refs"} | settings)))
    await one.source.start(one.lanes)
    try:
        yield one
    finally:
        one.lanes.may_suspend.set()
        await one.source.stop()
