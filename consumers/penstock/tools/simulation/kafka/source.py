"""The source of one worker, a member of the group in memory.

Rule: it calls `suspended`, `revoked` and `assigned` one after the other, as a real consumer; once
its worker is killed, nothing.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic

from penstock.adapters.memory import PartitionReader, behind
from penstock.core.progress.line_stop import Word, decode_words, encode_words, obeyed
from penstock.errors import Transient, Undecided
from penstock.ports import UNDECIDED, Commit, Rebalance, Record, Where
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.kafka.group import Group, Lives, W
from penstock.tools.simulation.kafka.topics import IN_ORDER_S, Topic
from penstock.tools.simulation.process_and_faults import FaultInjector, Process

# How much longer than the drain a hand-back or a stop may take. Commits may fail, producers may
# close slowly, and the worker looks only every ten seconds whether they have closed.
STOP_S = 30.0
ASK_AGAIN_S = 0.2
MOST_QUESTIONS = 20
# How long a new owner waits for an open transaction to end before taking it back.
ABANDONED_S = 1.0


class SimulatedSource(Generic[W]):
    """`watch`: a function that makes the checks of a life, see `Lives`. `drain_s` plus `margin_s`:
    the time in which the group expects a hand-back. `exactly_once`: True if positions that an open
    transaction may move are reported as `UNDECIDED`. `is_in_trouble`: True if the broker sometimes
    does not tell positions for a while.
    """

    def __init__(
        self,
        name: str,
        topic: Topic,
        group: Group,
        watch: Callable[[str, Where, Commit], W],
        process: Process,
        injector: FaultInjector,
        history: History,
        *,
        drain_s: float,
        margin_s: float,
        exactly_once: bool = False,
        is_in_trouble: bool = False,
    ) -> None:
        self.name = name
        self._is_in_trouble = is_in_trouble
        self.patience_s = drain_s + margin_s
        self._hand_back_s = drain_s + STOP_S
        self._lives = Lives(name, group, watch, history)
        self._topic = topic
        self._group = group
        self._exactly_once = exactly_once
        self._process = process
        self._injector = injector
        self._history = history
        self._rebalance: Rebalance | None = None
        self.generation = 0
        self._undecided_since_s: dict[Where, float] = {}
        self._ours: set[Where] = set()
        self._suspended: set[Where] = set()
        self._reader = PartitionReader(self._read)
        self._orders: deque[tuple[int, Sequence[Where]] | asyncio.Future[None]] = deque()
        self._ordered = asyncio.Event()
        self._arrives_s = 0.0
        topic.readers.append(self._reader.arrived)

    async def start(self, rebalance: Rebalance) -> None:
        await self._process.gate()
        self._rebalance = rebalance
        self._group.join(self)

    def life(self, where: Where) -> W:
        """The life that a record or a position of this partition belongs to."""
        return self._lives.of(where)

    def hand_back(self) -> asyncio.Future[None]:
        handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._orders.append(handed)
        self._ordered.set()
        return handed

    def take_over(self, generation: int, partitions: Sequence[Where]) -> None:
        self._orders.append((generation, partitions))
        self._ordered.set()

    async def listen(self) -> None:
        """Carry out the coordinator's orders, one after another."""
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            while self._orders:
                order = self._orders.popleft()
                await self._process.gate()
                await self._injector.delay()
                if self._rebalance is None:
                    return  # the worker has left
                if isinstance(order, asyncio.Future):
                    await self._hand_back()
                    # As on one connection, earlier commits arrive before the request to join.
                    await asyncio.sleep(
                        max(0.0, self._arrives_s - asyncio.get_running_loop().time())
                    )
                    if not order.done():
                        order.set_result(None)
                else:
                    await self._take_over(*order)

    def heartbeat(self) -> None:
        """The first heartbeat after a silence. If the group has expelled this member, it hands back
        its partitions and joins again.
        """
        if self not in self._group and self._rebalance is not None:
            self.hand_back()
            self._group.join(self)

    async def _hand_back(self) -> None:
        assert self._rebalance is not None
        self._reader.positions.clear()
        began_s = self._running_s()
        await self._rebalance.suspended(sorted(self._ours))
        if self._running_s() - began_s > self._hand_back_s:
            raise self._history.broken(f"{self.name} takes too long to hand back {self._ours}")
        self._suspended |= self._ours
        self._ours.clear()
        self._lives.suspend()
        if self not in self._group and self._rebalance is not None:
            self._group.join(self)

    def _running_s(self) -> float:
        """A clock that stands still while the process is frozen."""
        return asyncio.get_running_loop().time() - self._process.paused_s

    async def _take_over(self, generation: int, partitions: Sequence[Where]) -> None:
        assert self._rebalance is not None
        self.generation = generation
        self._ours = set(partitions)
        await self._lose(self._suspended - self._ours)
        for _ in range(MOST_QUESTIONS):
            if not (
                self._is_in_trouble and self._injector.happens(self._injector.faults.commit_fails)
            ):
                break
            await asyncio.sleep(ASK_AGAIN_S)  # a real coordinator may still be loading its log
        starts = {where: self._start(where) for where in partitions}
        await self._injector.delay()
        if self._rebalance is not None:  # None: the worker has left
            await self._assigned(starts)

    async def _lose(self, partitions: Collection[Where]) -> None:
        """Revoke partitions that were suspended and did not come back."""
        assert self._rebalance is not None
        await self._rebalance.revoked(sorted(partitions))
        for where in sorted(partitions):
            self._history.note("lost", f"{self.name} {where}")
        self._lives.end(partitions)

    async def _assigned(self, starts: Mapping[Where, Commit]) -> None:
        assert self._rebalance is not None
        generation = self.generation
        kept = await self._rebalance.assigned(starts)
        if generation != self.generation:
            return
        for where in kept:
            self._history.note("kept", f"{self.name} {where} {starts[where]} {kept[where]}")
        self._lives.go_on(kept)
        for where in sorted(self._suspended.intersection(starts).difference(kept)):
            self._history.note("not kept", f"{self.name} {where} {starts[where]}")
        self._suspended.clear()
        anew = {
            where: start
            for where, start in starts.items()
            if where not in kept and start != UNDECIDED
        }
        self._lives.begin(generation, anew)
        self._reader.go_to({where: anew[where] for where in anew if where in self._ours})
        self._reader.go_to({where: Commit(kept[where]) for where in kept})

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        """Begin new lives of these partitions at their committed positions."""
        await self._process.gate()
        await self._injector.delay()
        if self._injector.happens(self._injector.faults.commit_fails):
            raise Transient("the committed positions were not answered")
        starts = {where: self._start(where) for where in partitions}
        await self._injector.delay()
        await self._process.gate()
        if UNDECIDED in starts.values():
            raise Undecided("a transaction is open")
        ours = {where: start for where, start in starts.items() if where in self._ours}
        self._lives.begin(self.generation, ours)
        self._reader.go_to(ours)
        return ours

    def _start(self, where: Where) -> Commit:
        if not self._exactly_once or not self._group.is_undecided(where):
            self._undecided_since_s.pop(where, None)
            return self._group.start(where)
        self._history.counts["undecided"] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._undecided_since_s.setdefault(where, now_s) > ABANDONED_S:
            self._group.take_back_older(ABANDONED_S)
        return UNDECIDED

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        await self._process.gate()
        for where in partitions:
            if self._reader.positions.get(where, 0) > self._topic.end(where):
                await self._begin_again(where)
        return await self._reader.poll(partitions, wait_ms)

    async def _begin_again(self, where: Where) -> None:
        """The position is beyond the end of the partition. Tell the pipeline that the partition was
        revoked, and then assigned again at its beginning. If a rebalance begins meanwhile, stop,
        because the rebalance decides about the partition.
        """
        assert self._rebalance is not None
        generation = self.generation
        self._reader.positions.pop(where)
        await self._rebalance.revoked([where])
        self._lives.end([where])
        await self._injector.delay()
        await self._process.gate()
        start = {where: Commit(0)}
        is_ours = generation == self.generation and where in self._ours
        if is_ours and self._group.commit(self, generation, start):
            self._history.note("begin again", f"{self.name} {where}")
            await self._assigned(start)

    def _read(self, where: Where, position: int) -> tuple[Sequence[Record], int]:
        """Returns the next records, and the position after them. If a gap follows up to the end of
        the partition, the position is the one after the gap.
        """
        log = self._topic.records[where]
        index = bisect_left(log, position, key=lambda record: record.offset)
        fresh = log[index : index + 8]
        return fresh, behind(fresh, max(position, self._topic.end(where)))

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        """The commit leaves at once, reaches the group in the order of the calls, and gets its
        answer some time later.
        """
        await self._process.gate()
        ours = {where: commit for where, commit in commits.items() if where in self._ours}
        self._lives.committing(ours)
        fails = self._injector.happens(self._injector.faults.commit_fails)
        is_lost = fails and self._injector.happens(0.5)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        generation = self.generation

        def arrive() -> None:
            if not (is_lost or self._process.is_cut):
                self._group.commit(self, generation, ours)
            if not answer.done():
                answer.set_result(None)

        self._arrives_s = max(loop.time() + self._injector.delay_s(), self._arrives_s + IN_ORDER_S)
        loop.call_at(self._arrives_s, arrive)
        await answer
        await self._process.gate()
        if fails:
            raise Transient("the commit was not answered")

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        await self._process.gate()
        await self._injector.delay()
        if self._injector.happens(self._injector.faults.commit_fails):
            raise Transient("what is said of lines was not answered")
        return {where: self._group.said.get(where, "") for where in partitions}

    async def mark_obeyed(self, where: Where, words: Collection[Word]) -> None:
        await self._process.gate()
        await self._injector.delay()
        if self._injector.happens(self._injector.faults.commit_fails):
            raise Transient("a word about lines was not written")
        kept_words = obeyed(decode_words(self._group.said.get(where, "")), words)
        self._group.said[where] = encode_words(kept_words)

    def pause(self, where: Where) -> None:
        self._reader.positions.pop(where, None)

    def topic_id(self, where: Where) -> str | None:
        return None

    def reached(self) -> Mapping[Where, int]:
        return self._reader.positions

    def partitions(self) -> int:
        return len(self._group.partitions)

    async def end_offsets(self) -> Mapping[Where, int]:
        return {where: self._topic.end(where) for where in self._reader.positions}

    async def stop(self) -> None:
        if self._process.alive:
            self._group.leave(self)
            self._rebalance = None
            self._lives.end()
