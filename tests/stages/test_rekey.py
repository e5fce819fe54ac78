"""The rekeyer in a world of its own: members that die, transactions that fail, brokers that say
nothing. Whatever happens, each message is passed on once, and each stream in its order.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from zlib import crc32

import orjson
import pytest
from prometheus_client import CollectorRegistry

from penstock.errors import Fatal, Fenced, Transient, Unreachable
from penstock.ports import Commit, Outgoing, Rebalance, Record, Where
from penstock.stages.rekey import CUT_BYTES, SOURCE, Rekeyer, RekeyTerms
from penstock.telemetry.rekey import RekeyTelemetry
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.support.partitions import P0, P1, where

TOPIC = "by-stream"
OUT = 3
WAIT_S = 1.0


class World:
    """Input and output topic, and the group's positions. `fails` may raise in a transaction, before
    it is committed (False) or after (True).
    """

    def __init__(self, partitions: int) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.committed = dict.fromkeys(map(where, range(partitions)), 0)
        self.out: dict[int, list[tuple[bytes | None, bytes, str]]] = defaultdict(list)
        self.times: list[int] = []
        self.owner: Member | None = None
        self.epoch = 0
        self.fails: Callable[[bool], None] = lambda _: None
        self.answers = True
        self.hidden: set[Where] = set()
        self.untold: set[Where] = set()

    def write(
        self,
        stream: str,
        number: int,
        partition: int,
        at_ms: int,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        value = orjson.dumps({"bucket": "b", "key": f"{stream}/{number}"})
        self.write_raw(value, partition, at_ms, headers=headers)

    def write_raw(
        self,
        value: bytes | None,
        partition: int,
        at_ms: int,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        log = self.logs[partition]
        log.append(Record(where(partition), len(log), key, value, at_ms, headers=headers))

    @property
    def by_stream(self) -> dict[str, list[int]]:
        """The numbers of its messages, as they lie on the topic."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, records in self.out.items():
            for key, value, _ in records:
                assert key is not None
                assert partition_of(key) == number
                found[key.decode()].append(int(orjson.loads(value)["key"].rpartition("/")[2]))
        return found

    async def give_to(self, member: "Member | None") -> None:
        former, self.owner = self.owner, None
        if former is not None:
            await former.lose()
        self.owner = member
        if member is not None:
            await member.gain()

    async def ask(self, wanted: Iterable[Where], within_s: float) -> Mapping[Where, int]:
        if not self.answers:
            await asyncio.sleep(within_s)
            raise Unreachable("no broker")
        await asyncio.sleep(0.001)
        return {one: len(self.logs[one.partition]) for one in wanted}

    async def open(self) -> "Way":
        self.epoch += 1
        await asyncio.sleep(0.01)
        return Way(self, self.epoch)


class Way:
    def __init__(self, world: World, epoch: int) -> None:
        self._world = world
        self._epoch = epoch

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        world = self._world
        await asyncio.sleep(0.01)
        if world.epoch != self._epoch:
            raise Fenced("another one")
        world.fails(False)
        for one in outgoing:
            assert one.topic == TOPIC
            assert one.headers
            assert one.times_ms
            sources = [dict(headers)[SOURCE].decode() for headers in one.headers]
            world.out[one.partition] += zip(one.keys, one.values, sources, strict=True)
            world.times += one.times_ms
        for at, commit in positions.items():
            assert commit.next_offset > world.committed[at], "it went back"
            world.committed[at] = commit.next_offset
        world.fails(True)

    async def close(self) -> None:
        return


class Member:
    """One member of the group, as a source and as the task of a rekeyer."""

    def __init__(
        self,
        world: World,
        random: Random | None = None,
        record_bytes: int = 10_000,
        stream_from: str | None = None,
    ) -> None:
        self.world = world
        self.random = random
        self.positions: dict[Where, int] = {}
        self.registry = CollectorRegistry()
        self.telemetry = RekeyTelemetry(self.registry)
        terms = RekeyTerms(TOPIC, partition_of, record_bytes, stream_from, WAIT_S, 20.0)
        clock = VirtualClock()
        self.rekeyer = Rekeyer(
            self, world.open, world.ask, terms, clock, self.telemetry, lambda: 0.5
        )
        self.stopping = asyncio.Event()
        self.left = False
        self.task = asyncio.ensure_future(self.rekeyer.run(self.stopping))

    async def start(self, rebalance: Rebalance) -> None:
        return

    async def gain(self) -> None:
        self.positions = dict(self.world.committed)
        await self.rekeyer.assigned({one: Commit(at) for one, at in self.positions.items()})

    async def lose(self) -> None:
        await self.rekeyer.revoked(list(self.positions))
        self.positions = {}

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        """Some of what there is, as brokers answer one after the other."""
        await asyncio.sleep(0.001)
        found: list[Record] = []
        for partition in partitions:
            at = self.positions.get(partition)
            seen = self.random is None or self.random.random() < 0.5
            if at is None or partition in self.world.hidden or not seen:
                continue
            most = 500 if self.random is None else self.random.randint(1, 9)
            fresh = self.world.logs[partition.partition][at : at + most]
            self.positions[partition] += len(fresh)
            found += fresh
        if not found:
            await asyncio.sleep(wait_ms / 1000)
        return found

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        await asyncio.sleep(0.001)
        ours = [partition for partition in partitions if partition in self.positions]
        self.positions |= {our: self.world.committed[our] for our in ours}
        return {our: Commit(self.positions[our]) for our in ours}

    def reached(self) -> Mapping[Where, int]:
        return self.positions

    def known_ends(self) -> Mapping[Where, int]:
        """By the reads so far: of a partition that was not read nothing is known."""
        seen = self.positions.keys() - self.world.untold
        return {one: len(self.world.logs[one.partition]) for one in seen}

    async def stop(self) -> None:
        self.left = True

    async def kill(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def partition_of(key: bytes) -> int:
    return crc32(key) % OUT


async def all_passed_on(world: World) -> None:
    async with asyncio.timeout(600):
        while any(world.committed[where(n)] < len(log) for n, log in enumerate(world.logs)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(60))
@virtual_time
async def test_each_message_is_passed_on_once_and_each_stream_in_its_order(seed: int) -> None:
    random = Random(seed)
    world = World(random.randint(1, 5))
    streams = [f"cam-{number}" for number in range(4)]
    frames = dict.fromkeys(streams, 0)
    lost = 0

    def fail(_: bool) -> None:
        if random.random() < 0.1:
            raise Transient("the coordinator moved")

    world.fails = fail
    members = [Member(world, random) for _ in range(2)]
    await world.give_to(members[0])
    for step in range(300):
        for _ in range(random.choice([0, 1, 1, 3])):
            stream = random.choice(streams)
            at = random.randrange(len(world.logs))
            # Times of one stream never go back, and those of others may be the same.
            world.write(stream, frames[stream], at, step)
            frames[stream] += 1
            await asyncio.sleep(random.choice([0.0, 0.001, 0.02]))
        if random.random() < 0.02:
            await world.give_to(random.choice(members))
        if random.random() < 0.01:
            # Killed: nobody waits for what it was doing, and a zombie may still try.
            victim = members.pop(random.randrange(2))
            members.append(Member(world, random))
            if world.owner is victim:
                world.owner = None
                await world.give_to(members[0])
            await victim.kill()
            lost += 1
    world.fails = lambda _: None
    await all_passed_on(world)
    # Two of one stream in one millisecond may lie in different partitions: nothing tells which was
    # first. Sorted within such a group, the order must be right.
    written = {record.value: record.timestamp_ms for log in world.logs for record in log}
    for stream, numbers in world.by_stream.items():
        came = [written[orjson.dumps({"bucket": "b", "key": f"{stream}/{n}"})] for n in numbers]
        assert came == sorted(came), f"{stream} is out of order"
        assert sorted(numbers) == list(range(frames[stream])), f"{stream} is not whole, or repeated"
    for member in members:
        assert member.telemetry.totals["late"] == 0
        member.stopping.set()
        await member.task
        assert member.left


class BusyWorld(World):
    """Two more records come between the first read and the first question for the ends."""

    async def ask(self, wanted: Iterable[Where], within_s: float) -> Mapping[Where, int]:
        if len(self.logs[0]) == 1:
            self.write("a", 2, 1, at_ms=30)
            self.write("a", 3, 0, at_ms=40)
        return await super().ask(wanted, within_s)


@virtual_time
async def test_what_the_ends_include_is_read_before_the_transaction() -> None:
    world, transactions = BusyWorld(2), 0

    def count(is_committed: bool) -> None:
        nonlocal transactions
        transactions += is_committed

    world.fails = count
    world.write("a", 0, 0, at_ms=10)
    world.write("a", 1, 1, at_ms=20)
    member = Member(world)
    await world.give_to(member)
    await all_passed_on(world)
    assert world.by_stream == {"a": [0, 1, 2, 3]}
    assert transactions == 1
    await member.kill()


@virtual_time
async def test_a_partition_whose_broker_is_away_holds_the_others_up_for_so_long() -> None:
    world = World(2)
    world.hidden.add(P1)
    world.write("a", 1, 0, at_ms=20)
    world.write("a", 0, 1, at_ms=10)
    member = Member(world)
    await world.give_to(member)
    await asyncio.sleep(WAIT_S / 2)
    assert world.by_stream == {}
    await asyncio.sleep(WAIT_S)
    assert world.by_stream == {"a": [1]}
    world.hidden.clear()
    await all_passed_on(world)
    assert world.by_stream == {"a": [1, 0]}, "passed on at once"
    assert member.telemetry.totals["late"] == 1
    await member.kill()


@virtual_time
async def test_a_broker_that_does_not_tell_the_ends_is_not_waited_for_each_time() -> None:
    world = World(2)
    world.answers = False
    member = Member(world)
    await world.give_to(member)
    for number in range(10):
        world.write("a", number, number % 2, at_ms=number)
        await asyncio.sleep(0.3)
    await asyncio.sleep(WAIT_S)
    assert world.by_stream == {"a": list(range(10))}
    await member.kill()


@virtual_time
async def test_a_partition_that_no_read_told_of_is_waited_for_if_nobody_tells_the_ends() -> None:
    """As at the start of a stack, where every first question may fail."""
    world = World(2)
    world.answers = False
    world.hidden.add(P1)
    world.untold.add(P1)
    world.write("a", 1, 0, at_ms=20)
    world.write("a", 0, 1, at_ms=10)
    member = Member(world)
    await world.give_to(member)
    await asyncio.sleep(WAIT_S * 1.5)
    world.hidden.clear()
    world.untold.clear()
    await all_passed_on(world)
    assert world.by_stream == {"a": [0, 1]}
    await member.kill()


@virtual_time
async def test_what_is_passed_on_has_its_headers_its_time_and_its_origin() -> None:
    world = World(1)
    world.write("a", 0, 0, at_ms=77, headers=[("traceparent", b"t")])
    world.write_raw(b"no reference", 0, at_ms=78, key=b"k")
    world.write_raw(None, 0, at_ms=-1)
    member = Member(world)
    await world.give_to(member)
    await all_passed_on(world)
    records = [record for part in sorted(world.out) for record in world.out[part]]
    assert sorted(records) == [
        (b"a", orjson.dumps({"bucket": "b", "key": "a/0"}), "refs/0/0"),
        (b"k", b"no reference", "refs/0/1"),
        (b"partition-0", b"", "refs/0/2"),
    ]
    assert sorted(world.times) == [0, 77, 78]
    assert member.telemetry.totals["passed"] == 3
    await member.kill()


@virtual_time
async def test_what_is_too_large_for_the_topic_is_cut_and_holds_nothing_up() -> None:
    world = World(1)
    world.write_raw(b"{" + b" " * 5_000 + b"}", 0, at_ms=1, key=b"k")
    world.write("a", 0, 0, at_ms=2)
    member = Member(world, record_bytes=2_000)
    await world.give_to(member)
    await all_passed_on(world)
    values = {key: value for part in world.out.values() for key, value, _ in part}
    assert len(values[b"k"]) == CUT_BYTES
    assert member.telemetry.totals["cut"] == 1
    await member.kill()


@virtual_time
async def test_a_message_that_nobody_foresaw_is_left_to_the_worker() -> None:
    world = World(1)
    world.write("a", 0, 0, at_ms=1)
    # Without its group, which the settings would have refused.
    member = Member(world, stream_from="a")
    await world.give_to(member)
    await all_passed_on(world)
    assert [key for part in world.out.values() for key, *_ in part] == [b"partition-0"]
    assert member.telemetry.totals["unforeseen"] == 1
    await member.kill()


@virtual_time
async def test_transactions_that_fail_for_good_end_the_process() -> None:
    world = World(1)

    def fail(_: bool) -> None:
        raise Transient("no coordinator")

    world.fails = fail
    world.write("a", 0, 0, at_ms=1)
    member = Member(world)
    await world.give_to(member)
    with pytest.raises(Fatal, match="no transaction for 20 s: no coordinator"):
        await member.task


@virtual_time
async def test_a_stop_does_not_wait_for_the_pause_after_a_failed_transaction() -> None:
    world = World(1)

    def fenced(_: bool) -> None:
        raise Fenced("another one")  # after it, a member waits for 5 s

    world.fails = fenced
    world.write("a", 0, 0, at_ms=1)
    member = Member(world)
    await world.give_to(member)
    await asyncio.sleep(1.0)
    member.stopping.set()
    await asyncio.wait_for(member.task, 0.1)
    assert member.left


@virtual_time
async def test_the_backlog_is_what_is_not_passed_on() -> None:
    world = World(2)
    world.hidden = {P0, P1}
    for number in range(5):
        world.write("a", number, number % 2, at_ms=number)
    member = Member(world)
    await world.give_to(member)
    await asyncio.sleep(1.0)
    assert member.registry.get_sample_value("penstock_rekey_backlog") == 5
    assert member.registry.get_sample_value("penstock_rekey_leads") == 1
    world.hidden.clear()
    await all_passed_on(world)
    assert member.registry.get_sample_value("penstock_rekey_backlog") == 0
    await world.give_to(None)
    await asyncio.sleep(1.0)
    assert member.registry.get_sample_value("penstock_rekey_leads") == 0
    await member.kill()
