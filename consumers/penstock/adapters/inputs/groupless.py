"""What a source does that is a member of no group: nobody takes its partitions away, and nobody
says anything of their lines.
"""

from collections.abc import Collection, Mapping

from penstock.ports import Commit


class Groupless:
    """These parts of the port `Source` have nothing to do."""

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return {}

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return {}

    def pause(self, partition: int) -> None:
        return

    async def stop(self) -> None:
        return
