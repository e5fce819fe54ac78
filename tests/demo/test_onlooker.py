"""The onlooker reads each record once, when it is new, so records that the broker drops later
count.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock import config
from penstock.adapters.kafka.follower import Bite
from penstock.ports import Commit
from penstock.tools.demo.job import Onlooker
from penstock.tools.simulation.virtual_time import virtual_time
from tests.verify.topics import Entry, Topics

ANSWERED_MS = 1_250


class Stamped(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = ANSWERED_MS


class Part(NamedTuple):
    """A partition, as the client names it."""

    partition: int


class Topic:
    """Hands out each record once, after `late_s`, and then has forgotten it."""

    def __init__(self, name: str, late_s: float = 0.0) -> None:
        self.partitions = (0,)
        self.name = name
        self._late_s = late_s
        self._waiting: list[Any] = []
        self._end = self._read = 0

    def add(self, records: list[Any]) -> None:
        self._waiting += records
        self._end += len(records)

    async def more(self, wait_ms: int) -> list[Bite]:
        await asyncio.sleep(max(wait_ms / 1000, self._late_s))
        records, self._waiting = self._waiting, []
        self._read += len(records)
        return [Bite(self.name, 0, records)] if records else []

    async def ends(self) -> Mapping[Any, int]:
        return {Part(0): self._end}

    async def has_reached(self, ends: Mapping[Any, int]) -> bool:
        return self._read >= ends[Part(0)]


@virtual_time
async def test_answers_that_are_seen_before_their_references_wait_for_them() -> None:
    topics = Topics()
    seen: list[tuple[str, int, float]] = []

    async def committed() -> Mapping[int, Commit]:
        return {0: Commit(20)}

    references, answers = Topic("refs", late_s=3.0), Topic("predictions")
    onlooker = Onlooker(
        config.Config(),
        references,  # type: ignore[arg-type]
        answers,  # type: ignore[arg-type]
        1,
        committed,
        lambda *record: seen.append(record),
    )
    running = asyncio.create_task(onlooker.run())
    for number in range(20):
        before = len(topics.refs[0]), len(topics.out)
        topics.answer(topics.ask(f"{number}"), range(5), 5, name=f"{number}")
        references.add([Entry(at, *topics.refs[0][at]) for at in range(before[0], before[0] + 1)])
        answers.add([Stamped(at, *topics.out[at]) for at in range(before[1], before[1] + 5)])
        await asyncio.sleep(1.0)
    report = await onlooker.report()
    await running
    assert seen == [(f"{number}", 5, ANSWERED_MS / 1000) for number in range(20)]
    assert (report.ok, report.rows, report.objects) == (True, 100, 20)
