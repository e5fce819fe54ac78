"""The consumer group in memory: its coordinator, members, generations, positions, transactions.

Rule: as Kafka's coordinator. A rebalance waits until every member has handed back its partitions,
up to a deadline; one that is silent or late is expelled, and finds out later. A commit from another
generation is refused. One from a member that has handed back breaks a promise: with Kafka it would
begin another rebalance.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Generic, Protocol, TypeVar

from penstock.ports import Commit, Where
from penstock.tools.simulation.checks.history import History
from penstock.tools.simulation.kafka.topics import Topic

SESSION_S = 8.0
# Members that join within this time share one rebalance.
GATHERING_S = 0.05
# In this share of all cases a partition stays with its member. Otherwise its owner is drawn at
# random.
STAYS = 0.5
# If a transaction is open for longer than this, the broker takes it back.
TRANSACTION_S = 30.0


class SimulatedMember(Protocol):
    """A member as the coordinator sees it."""

    @property
    def name(self) -> str: ...

    @property
    def patience_s(self) -> float:
        """How long the member may take to hand back its partitions."""
        ...

    def hand_back(self) -> asyncio.Future[None]:
        """Ask for all partitions back. The future is done when the member will no longer commit in
        the old generation.
        """
        ...

    def take_over(self, generation: int, partitions: Sequence[Where]) -> None: ...


class SimulatedTransaction:
    """A transaction of a member. It is open until it is either decided or taken back."""

    def __init__(
        self, member: SimulatedMember, positions: Mapping[Where, Commit], began_s: float
    ) -> None:
        self.member = member
        self.positions = positions
        self.began_s = began_s
        self.place = 0
        self.is_decided = False
        self.is_taken_back = False


class Group:
    """Run `coordinate` as the group's only task. `only`: the partitions of the group; empty: the
    whole topic.
    """

    def __init__(
        self, topic: Topic, random: Random, history: History, only: Sequence[Where] = ()
    ) -> None:
        self._only = only
        self.committed: dict[Where, Commit] = {}
        self.generation = 0
        # For each partition, the operator's words about its stopped lines.
        self.said: dict[Where, str] = {}
        self._moved: dict[Where, Commit] = {}
        # For each partition: everything before this offset was answered. If an operator moves a
        # position forward, this offset does not change.
        self._reached: dict[Where, int] = {}
        self._written: dict[Where, Commit] = {}
        self._topic = topic
        self._random = random
        self._history = history
        self._members: dict[SimulatedMember, None] = {}
        self._owners: dict[Where, SimulatedMember] = {}
        # Members whose last commit was refused.
        self._fenced: set[SimulatedMember] = set()
        # All open transactions. `_pending`: for each partition, the transactions that will move its
        # position, in the order in which their positions arrived. `_places`: for each partition,
        # the place in this order of the transaction or commit that moved the position last.
        self._open: dict[SimulatedTransaction, None] = {}
        self._pending: dict[Where, list[SimulatedTransaction]] = {}
        self._places: dict[Where, int] = {}
        self._place = 0
        self._wanted = asyncio.Event()
        self._handing: dict[SimulatedMember, asyncio.Future[None]] = {}

    def __contains__(self, member: SimulatedMember) -> bool:
        return member in self._members

    @property
    def partitions(self) -> Sequence[Where]:
        return self._only or self._topic.partitions

    def join(self, member: SimulatedMember) -> None:
        if member not in self._members:
            self._history.note("join", member.name)
            self._members[member] = None
        self._wanted.set()

    def leave(self, member: SimulatedMember) -> None:
        """Remove the member, because it leaves by itself, or because its session is over."""
        if self._members.pop(member, member) is None:
            self._history.note("leave", member.name)
            self._wanted.set()
            if member in self._handing and not self._handing[member].done():
                self._handing[member].set_result(None)

    def rebalance(self) -> None:
        self._wanted.set()

    def start(self, where: Where) -> Commit:
        return self.committed.get(where, Commit(0))

    def move(self, where: Where, offset: int) -> None:
        """Move the position, but keep its metadata. This happens when an operator moves a position,
        or when a topic is deleted and made again.
        """
        if self.is_undecided(where):
            return  # otherwise the end of a transaction would move it again
        before = self.start(where)
        self._reached[where] = min(offset, self.reached(where))
        moved = Commit(offset, before.metadata)
        if moved != before:
            self.committed[where] = self._moved[where] = moved
        self._history.note("move", f"{where} {moved}")

    # What follows is about transactions.

    def is_undecided(self, where: Where) -> bool:
        """True while a transaction may still move the position. Until then no owner may begin
        there.
        """
        return bool(self._pending.get(where))

    def decided(self, where: Where) -> Commit:
        """The committed position; if a decided transaction is about to move it, the position after
        the move.
        """
        ended = [
            transaction for transaction in self._pending.get(where, ()) if transaction.is_decided
        ]
        return ended[-1].positions[where] if ended else self.start(where)

    def begin(
        self, member: SimulatedMember, positions: Mapping[Where, Commit]
    ) -> SimulatedTransaction:
        loop = asyncio.get_running_loop()
        opened = SimulatedTransaction(member, positions, loop.time())
        self._open[opened] = None
        loop.call_later(TRANSACTION_S, self.take_back, opened)
        return opened

    def stage(self, opened: SimulatedTransaction, generation: int) -> bool:
        """The positions of the transaction arrive at the group. Returns False if the group has gone
        on without the member.
        """
        member = opened.member
        if opened.is_taken_back or not self.accepts(member, generation):
            self._history.note("fenced transaction", f"{member.name} {opened.positions}")
            self._fenced.add(member)
            return False
        self._fenced.discard(member)
        opened.place = self._place = self._place + 1
        for where in opened.positions:
            self._check_owner(member, where)
            self._pending.setdefault(where, []).append(opened)
        return True

    def decide(self, opened: SimulatedTransaction, marked_in_s: float) -> bool:
        """Commit the transaction, unless it was taken back. The positions move after
        `marked_in_s`.
        """
        if opened.is_taken_back:
            return False
        opened.is_decided = True
        asyncio.get_running_loop().call_later(marked_in_s, self._move_with, opened)
        return True

    def _move_with(self, opened: SimulatedTransaction) -> None:
        self._forget(opened)
        for where, position in opened.positions.items():
            if self._places.get(where, 0) < opened.place:
                self._places[where] = opened.place
                self.put(where, position)

    def take_back(self, opened: SimulatedTransaction) -> None:
        if not opened.is_decided and opened in self._open:
            self._history.note("taken back", f"{opened.member.name} {opened.positions}")
            opened.is_taken_back = True
            self._forget(opened)

    def take_back_older(self, than_s: float) -> None:
        """Take back all transactions that were begun at least `than_s` ago, whichever member has
        begun them. A living member repeats its transaction.
        """
        latest_s = asyncio.get_running_loop().time() - than_s
        for opened in [
            transaction for transaction in self._open if transaction.began_s <= latest_s
        ]:
            self.take_back(opened)

    def _forget(self, opened: SimulatedTransaction) -> None:
        self._open.pop(opened, None)
        for waiting in self._pending.values():
            if opened in waiting:
                waiting.remove(opened)

    def reached(self, where: Where) -> int:
        return self._reached.get(where, 0)

    def worth(self, where: Where, start: Commit) -> Commit:
        """The part of a position that a worker may use. If an operator has moved the position, only
        the offset may be used, unless a worker has written the same position as well.
        """
        is_moved = self._moved.get(where) == start and self._written.get(where) != start
        return Commit(start.next_offset) if is_moved else start

    def commit(
        self, member: SimulatedMember, generation: int, commits: Mapping[Where, Commit]
    ) -> bool:
        """Accept a commit. Returns False if the group has gone on without this member."""
        if not self.accepts(member, generation):
            self._history.note("fenced", member.name)
            self._fenced.add(member)
            return False
        if member in self._handing and self._handing[member].done():
            self._history.broken(f"{member.name} commits after it has handed back")
            return False
        self._fenced.discard(member)
        for where, commit in commits.items():
            self._check_owner(member, where)
            self._history.note("commit", f"{member.name} {where} {commit}")
            self._places[where] = self._place = self._place + 1
            self.put(where, commit)
        return True

    def accepts(self, member: SimulatedMember, generation: int) -> bool:
        """False if the group has gone on without this member."""
        return generation == self.generation and member in self._members

    def _check_owner(self, member: SimulatedMember, where: Where) -> None:
        if self._owners.get(where) is not member:
            self._history.broken(f"{member.name} commits in {where}, which is not its own")

    def owned(self, member: SimulatedMember, where: Where) -> bool:
        """True if this member was the last owner of the partition, and its last commit was
        accepted. The member may have left since.
        """
        return member not in self._fenced and self._owners.get(where) is member

    def put(self, where: Where, commit: Commit) -> None:
        """Write the position of a partition, from a commit or from a transaction."""
        self.committed[where] = self._written[where] = commit
        if commit.next_offset <= self._topic.end(where):
            self._reached[where] = commit.next_offset

    async def coordinate(self) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(self._random.uniform(0.0, GATHERING_S))
            self._wanted.clear()
            if self._members:
                await self._rebalance()

    async def _rebalance(self) -> None:
        self._handing = {member: member.hand_back() for member in self._members}
        patience_s = max(member.patience_s for member in self._handing)
        await asyncio.wait(self._handing.values(), timeout=patience_s)
        for member, handed in self._handing.items():
            if not handed.done():
                self.leave(member)
        self.generation += 1
        # A member that joined during the hand-back takes part in the next rebalance.
        members = [each for each in self._handing if each in self._members]
        self._handing = {}
        if not members:
            return
        self._owners = {where: self._owner(where, members) for where in self.partitions}
        self._history.note("generation", f"{self.generation} {len(members)} members")
        for member in members:
            theirs = [where for where, owner in self._owners.items() if owner is member]
            member.take_over(self.generation, theirs)

    def _owner(self, where: Where, members: Sequence[SimulatedMember]) -> SimulatedMember:
        before = self._owners.get(where)
        if before is not None and before in members and self._random.random() < STAYS:
            return before
        return self._random.choice(members)


class Watched:
    """A life: from one assignment of a partition to its end. This base class checks nothing."""

    over = False
    suspended = False

    def committing(self, commit: Commit) -> None:
        return

    def committed(self, commit: Commit) -> None:
        return


W = TypeVar("W", bound=Watched)


class Lives(Generic[W]):
    """`watch`: a function that makes the checks of a life from its name, its partition, and the
    start that the worker may use.
    """

    def __init__(
        self, worker: str, group: Group, watch: Callable[[str, Where, Commit], W], history: History
    ) -> None:
        self._worker = worker
        self._group = group
        self._watch = watch
        self._history = history
        self._lives: dict[Where, W] = {}

    def of(self, where: Where) -> W:
        """The life for which the worker publishes in this partition. Having none breaks a
        promise.
        """
        life = self._lives.get(where)
        if life is None:
            raise self._history.broken(f"{self._worker} publishes on {where}, which is not its own")
        return life

    def begin(self, generation: int, starts: Mapping[Where, Commit]) -> None:
        for where, start in starts.items():
            name = f"{self._worker} generation {generation}"
            self._history.note("life", f"{name} {where} {start}")
            if start.metadata:
                self._history.counts["resumed inside a record"] += 1
            self._end(where)
            self._lives[where] = self._watch(name, where, self._group.worth(where, start))

    def suspend(self) -> None:
        for life in self._lives.values():
            life.suspended = True

    def go_on(self, partitions: Iterable[Where]) -> None:
        """Go on with the suspended lives of these partitions, which came back at the same
        positions.
        """
        for where in partitions:
            self._lives[where].suspended = False

    def committing(self, commits: Mapping[Where, Commit]) -> None:
        """A commit is leaving the worker."""
        for where, commit in commits.items():
            self._lives[where].committing(commit)
            self._lives[where].committed(commit)

    def end(self, partitions: Collection[Where] | None = None) -> None:
        """End the lives of these partitions; without `partitions`, end all lives."""
        for where in list(self._lives) if partitions is None else partitions:
            self._end(where)

    def _end(self, where: Where) -> None:
        if life := self._lives.pop(where, None):
            life.over = True
