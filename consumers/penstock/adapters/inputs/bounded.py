"""A source that reads the input topics up to given ends, for a replay or a job.

Rule: everything except reading is passed to the real source, so a bounded worker joins, commits,
hands back and takes over like any other. A partition gives no record at or after its end. The
offsets before the end count as read even where they have no records, so that the last committed
position is the end. A partition without an end is not read at all. Owner: the consume task.
"""

from collections.abc import Collection, Mapping, Sequence

from penstock.ports import Commit, Rebalance, Record, Source, Where


class BoundedSource:
    """`ends`: for each partition the first offset that is not read. While `is_held` is set, nothing
    is read at all.
    """

    def __init__(self, source: Source, ends: Mapping[Where, int]) -> None:
        self._source = source
        self._ends = ends
        self.is_held = False

    async def start(self, rebalance: Rebalance) -> None:
        await self._source.start(rebalance)

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        wanted = [] if self.is_held else self._unread(partitions)
        found = await self._source.poll(wanted, wait_ms)
        return [record for record in found if record.offset < self._end(record.partition)]

    def _unread(self, partitions: Collection[int]) -> list[int]:
        """The partitions that are not at their end. All other partitions are paused, so that the
        client does not fetch them.
        """
        reached = self._source.reached()
        at_end = {each for each in partitions if reached.get(each, -1) >= self._end(each)}
        for each in at_end:
            self._source.pause(each)
        return [each for each in partitions if each not in at_end]

    def _end(self, partition: int) -> int:
        return self._ends.get(self._source.where(partition), 0)

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        await self._source.commit(commits)

    def pause(self, partition: int) -> None:
        self._source.pause(partition)

    def where(self, partition: int) -> Where:
        return self._source.where(partition)

    def reached(self) -> Mapping[int, int]:
        found = self._source.reached()
        return {each: min(offset, self._end(each)) for each, offset in found.items()}

    def partitions(self) -> int:
        return self._source.partitions()

    async def end_offsets(self) -> Mapping[int, int]:
        found = await self._source.end_offsets()
        return {each: min(offset, self._end(each)) for each, offset in found.items()}

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return await self._source.words(partitions)

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return await self._source.rewind(partitions)

    async def stop(self) -> None:
        await self._source.stop()
