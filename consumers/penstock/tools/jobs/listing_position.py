"""Keeps in Kafka how far a listing was announced, so that the command can go on after a crash.

Rule: every few seconds, when all that was sent is acknowledged, the position is committed for a
group without members. Marks in the topic tell what was sent after that: the last mark of a
partition names a place in the listing, and the partition's references up to it are not sent again.
So none is missing or double, although the command writes without transactions, and workers read
uncommitted records. Of several processes the one that began last owns the position; before a
process sends, it checks that it still does, and ends if not.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from secrets import token_hex

import msgspec
from msgspec import Struct

from penstock.adapters.kafka.positions_from_outside import KeptPositions
from penstock.adapters.kafka.reader import Reader
from penstock.errors import usage
from penstock.ports import Commit
from penstock.tools.jobs.globs_and_manifests import At

# The name of the header that holds a partition's mark.
MARK = "penstock-listing"
# The position is committed this often, so that a later process has few marks to read.
KEEP_S = 2.0
# A process may send only within this time after it has seen that it owns the position.
SURE_S = 0.5
# A process that takes over waits this long. After this time, everything that a killed process had
# sent is on the topic, and an earlier process that still ran has ended.
ARRIVED_S = 3.0
# If a process has looked for a position and found none, it writes its own within this time.
BEGUN_S = 1.0


class _KeptPosition(Struct):
    """The metadata of each partition's commit. `job`: the id of the announcement, which is the same
    for all processes that go on with it. `run`: the id of the process that owns the position.
    `pin`: the version of the list. `at`: the place that was reached; None: the beginning.
    `partitions`: the number of the topic's partitions when the job began; with this number, streams
    keep their partitions even if partitions are added.
    """

    v: int
    job: str
    run: str
    pin: str
    partitions: int
    announced: int = 0
    at: At | None = None
    is_done: bool = False


class _Mark(Struct, array_like=True):
    """The mark of a batch: the place of its last reference, and the number of its references."""

    job: str
    at: At
    count: int


class ListingPosition:
    """The position of one listing. Get one from `open_position`. `reached`: for each partition that
    has marks beyond `at`, the place up to which its references are on the topic. `before`: the
    number of references that earlier processes announced.
    """

    def __init__(self, kept: KeptPositions, topic: str, kept_position: _KeptPosition) -> None:
        self._kept = kept
        self._topic = topic
        self._kept_position = kept_position
        self._at_s = asyncio.get_running_loop().time()
        self._sure_until_s = self._at_s
        self._is_begun = False
        self.reached: dict[int, At] = {}
        self._beyond: At | None = None
        self.before = kept_position.announced

    @property
    def at(self) -> At | None:
        return self._kept_position.at

    @property
    def partitions(self) -> int:
        return self._kept_position.partitions

    @property
    def is_done(self) -> bool:
        return self._kept_position.is_done

    def is_due(self, at: At | None) -> bool:
        """True if the position may be committed now. False if earlier processes have sent
        references beyond `at`: only marks tell of these references, and after a commit, the marks
        before the committed offsets would never be read.
        """
        if self._beyond is not None and at is not None and at >= self._beyond:
            self._beyond = None
        is_time = asyncio.get_running_loop().time() - self._at_s >= KEEP_S
        return is_time and self._beyond is None

    def mark(self, at: At, count: int) -> bytes:
        return msgspec.json.encode(_Mark(self._kept_position.job, at, count))

    async def be_sure(self) -> None:
        """Call this before anything is sent. Raises `Fatal` if another process of the command owns
        the position now.
        """
        if asyncio.get_running_loop().time() >= self._sure_until_s:
            await self._ask()

    async def _ask(self) -> None:
        asked_s = asyncio.get_running_loop().time()
        for kept_position in _read(await self._kept.read()).values():
            if kept_position.run != self._kept_position.run:
                raise usage(
                    "another start of this command has taken over and goes on; this one ends"
                )
        self._sure_until_s = asked_s + SURE_S

    async def keep(self, at: At | None, announced: int, *, is_done: bool = False) -> None:
        """Commit the position `at`. All references up to `at` must be acknowledged. `announced`:
        how many of them this process has sent.
        """
        await self._ask()
        self._kept_position.at, self._kept_position.is_done = at, is_done
        self._kept_position.announced = self.before + announced
        await self._write()

    async def _write(self) -> None:
        metadata = msgspec.json.encode(self._kept_position).decode()
        spans = await self._kept.spans()
        await self._kept.write({n: Commit(end, metadata) for n, (_, end) in spans.items()})
        self._at_s = asyncio.get_running_loop().time()

    async def begin(self) -> None:
        """Call this when there is something to announce: a listing that names nothing leaves no
        position. The first call writes the position, and waits until other processes that are
        beginning now have written theirs. The process that writes last owns the position; in every
        other process this raises `Fatal`.
        """
        if self._is_begun:
            return
        self._is_begun = True
        await self._write()
        await asyncio.sleep(BEGUN_S)
        await self._ask()

    async def take_over(self, reader: Reader, commits: Mapping[int, Commit]) -> None:
        """Become the owner of the position, so that an earlier process that still runs will end.
        Then read the marks of all references that were sent since the position was committed.
        """
        self._is_begun = True
        metadata = msgspec.json.encode(self._kept_position).decode()
        await self._kept.write(
            {n: commit._replace(metadata=metadata) for n, commit in commits.items()}
        )
        begins = {number: commit.next_offset for number, commit in commits.items()}
        while True:
            await asyncio.sleep(ARRIVED_S)
            spans = await self._kept.spans()
            await self._ask()
            if not await self._read_marks(reader, spans, begins):
                break
        self._kept_position.announced = self.before

    async def _read_marks(
        self, reader: Reader, spans: Mapping[int, tuple[int, int]], begins: dict[int, int]
    ) -> bool:
        """Read the marks in the partitions, from the offsets `begins` on. Returns False if there
        was no mark of this job.
        """
        has_former = False
        for number, begin in begins.items():
            first, end = spans[number]
            if not first <= begin <= end:
                raise usage(
                    f"{self._topic}/{number} holds offsets {first} to {end}, but the position of "
                    f"this listing is at {begin}: its records are gone, so what was announced "
                    "cannot be told any more. --anew announces all again"
                )
        wanted = {number: (begin, spans[number][1]) for number, begin in begins.items()}
        async with aclosing(reader.records(self._topic, wanted)) as records:
            async for record in records:
                for name, value in record.headers:
                    if name == MARK and self._take(record.partition, value):
                        has_former = True
        begins.update({number: end for number, (_, end) in wanted.items()})
        return has_former

    def _take(self, number: int, value: bytes) -> bool:
        try:
            mark = msgspec.json.decode(value, type=_Mark)
        except (msgspec.MsgspecError, TypeError, ValueError):
            return False  # another program wrote this header
        if mark.job != self._kept_position.job:
            return False
        self.reached[number] = mark.at
        self._beyond = max(self.reached.values())
        self.before += mark.count
        return True


async def open_position(
    kept: KeptPositions,
    reader: Reader,
    topic: str,
    *,
    pin: str,
    partitions: int,
    resume: bool,
    anew: bool,
) -> ListingPosition:
    """The position at which an earlier process of the same command ended; if there was none, the
    beginning. Raises `Fatal` if an earlier process ended before it was done, and neither `resume`
    nor `anew` says what to do.
    """
    commits = await kept.read()
    former = {} if anew else _read(commits)
    if not resume and not all(former_position.is_done for former_position in former.values()):
        raise usage(
            "an earlier start of this command was cut off: --resume goes on there, --anew "
            "announces all of it again"
        )
    fresh = _KeptPosition(1, token_hex(4), token_hex(4), pin, partitions)
    if not resume or not former:
        return ListingPosition(kept, topic, fresh)
    # One request writes the commits of all partitions. If it failed halfway, the partitions tell
    # different positions. Then the earliest one counts.
    kept_position = min(former.values(), key=lambda position: position.announced)
    if kept_position.pin != pin:
        raise usage(
            "the list has changed since its announcement began, so its position means nothing "
            "any more. --anew announces all of it"
        )
    kept_position.run = fresh.run
    position = ListingPosition(kept, topic, kept_position)
    if not kept_position.is_done:
        await position.take_over(reader, commits)
    return position


def _read(commits: Mapping[int, Commit]) -> dict[int, _KeptPosition]:
    try:
        return {
            number: msgspec.json.decode(commit.metadata, type=_KeptPosition)
            for number, commit in commits.items()
        }
    except (msgspec.MsgspecError, ValueError):
        raise usage(
            "the group of this listing holds something else. --anew overwrites it"
        ) from None
