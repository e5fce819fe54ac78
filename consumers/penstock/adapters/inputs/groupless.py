"""The part of the port `Source` that a source without a consumer group need not do.

Rule: nobody takes the partitions of such a source away, and no command tells it what to do with
stopped lines. Owner: the source that inherits from it.
"""

from collections.abc import Collection, Mapping

from penstock.ports import Commit


class Groupless:
    """A base for sources that are members of no group."""

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return {}

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return {}

    def pause(self, partition: int) -> None:
        return

    async def stop(self) -> None:
        return
