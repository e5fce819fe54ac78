"""A loop commits what is safe, and hands back a partition with nothing left under way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from penstock.errors import Transient
from penstock.ports import Commit, Rebalance, Record, Where
from penstock.scenes.core.decision_time import Behind
from penstock.scenes.core.rules import BEHIND_MS
from penstock.scenes.engine import COMMIT_S, POLL_MS, UNDER_WAY, TopicLoop
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0


class Topic:
    """Gives out what is put into `records`, once; remembers the commits."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.commits: list[dict[Where, Commit]] = []
        self.fails = 0
        self.left = False
        # As from Kafka, where a read that was begun before a rebalance returns what came after it.
        self.comes_at_once = False

    async def start(self, rebalance: Rebalance) -> None:
        await rebalance.assigned({P0: Commit(0)})

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        if not partitions or not self.records:
            await asyncio.sleep(wait_ms / 1000)
        if not self.records or not (partitions or self.comes_at_once):
            return ()
        return [self.records.pop(0)]

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        if self.fails:
            self.fails -= 1
            raise Transient("no coordinator")
        self.commits.append(dict(commits))

    async def stop(self) -> None:
        self.left = True

    def reached(self) -> Mapping[Where, int]:
        return {}

    def known_ends(self) -> Mapping[Where, int]:
        return {}


class Work:
    """Is safe when the test says so."""

    def __init__(self) -> None:
        self.handed: list[int] = []
        self.safe: list[asyncio.Future[None]] = []
        self.events: list[str] = []
        self.takes_s = 0.0

    async def __call__(self, records: Sequence[Record]) -> Awaitable[object]:
        self.handed += [record.offset for record in records]
        self.safe.append(asyncio.get_running_loop().create_future())
        return self.safe[-1]

    async def taken(self, partitions: Collection[Where]) -> None:
        await asyncio.sleep(self.takes_s)
        self.events.append(f"taken {sorted(map(str, partitions))}")

    async def given(self, partitions: Collection[Where]) -> None:
        self.events.append(f"given {sorted(map(str, partitions))}")


def record(offset: int) -> Record:
    return Record(P0, offset, b"s", b"", 0)


@asynccontextmanager
async def running(records: int) -> AsyncIterator[tuple[Topic, Work, TopicLoop]]:
    """A loop that has read all it may of so many records."""
    topic, work = Topic(), Work()
    topic.records = [record(offset) for offset in range(records)]
    loop = TopicLoop(topic, work, work.taken, work.given)
    task = asyncio.ensure_future(loop.run(asyncio.Event()))
    await asyncio.sleep(0.1)
    yield topic, work, loop
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@virtual_time
async def test_only_what_is_safe_is_committed() -> None:
    async with running(3) as (topic, work, _):
        assert work.handed == [0, 1, 2], "read on while the first is under way"
        work.safe[1].set_result(None)
        await asyncio.sleep(2 * COMMIT_S)
        assert topic.commits == []
        work.safe[0].set_result(None)
        await asyncio.sleep(2 * COMMIT_S)
        assert topic.commits == [{P0: Commit(2)}]


@virtual_time
async def test_what_is_under_way_is_bounded() -> None:
    async with running(100) as (topic, work, _):
        await asyncio.sleep(10)
        assert len(work.handed) <= UNDER_WAY + 2
        assert topic.records


@virtual_time
async def test_a_partition_is_handed_back_when_its_batches_are_safe_and_committed() -> None:
    async with running(2) as (topic, work, loop):
        going = asyncio.ensure_future(loop.revoked([P0]))
        await asyncio.sleep(COMMIT_S / 2)
        assert not going.done()
        for safe in work.safe:
            safe.set_result(None)
        await going
        assert topic.commits[-1] == {P0: Commit(2)}
        topic.records = [record(2)]
        await asyncio.sleep(1)
        assert work.handed == [0, 1], "it is another's"
        assert work.events == ["taken ['refs/0']", "given ['refs/0']"]


@virtual_time
async def test_what_is_read_while_a_partition_is_taken_over_is_not_lost() -> None:
    async with running(0) as (topic, work, loop):
        await asyncio.sleep(POLL_MS / 2000)  # in the middle of a read
        await loop.revoked([P0])
        topic.records = [record(0)]
        work.takes_s = 1.0
        topic.comes_at_once = True
        taking = asyncio.ensure_future(loop.assigned({P0: Commit(0)}))
        await asyncio.sleep(2.0)
        await taking
        assert work.handed == [0]


@virtual_time
async def test_a_commit_that_failed_is_made_again() -> None:
    async with running(1) as (topic, work, _):
        topic.fails = 1
        work.safe[0].set_result(None)
        await asyncio.sleep(3 * COMMIT_S)
        assert topic.commits == [{P0: Commit(1)}]


@virtual_time
async def test_a_stop_leaves_nothing_under_way() -> None:
    topic, work, stop = Topic(), Work(), asyncio.Event()
    topic.records = [record(0)]
    running = asyncio.ensure_future(TopicLoop(topic, work, work.taken, work.given).run(stop))
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.sleep(10)
    assert not running.done()
    work.safe[0].set_result(None)
    await running
    assert (topic.commits, topic.left) == ([{P0: Commit(1)}], True)


def test_behind_is_who_reads_old_records_and_has_more() -> None:
    backlog: Behind[str] = Behind()
    backlog.handled("p", 4, came_ms=0, now_ms=10 * BEHIND_MS)
    assert backlog.is_behind({"p": 6}, 10 * BEHIND_MS)
    assert not backlog.is_behind({"p": 5}, 10 * BEHIND_MS), "it was the last"
    assert not backlog.is_behind({"p": 6}, 20 * BEHIND_MS), "the rest is no record"
    backlog.handled("p", 5, came_ms=10 * BEHIND_MS - 10, now_ms=10 * BEHIND_MS)
    assert not backlog.is_behind({"p": 9}, 10 * BEHIND_MS), "it is as new as can be"
