"""Which partition a key belongs to, as Java's default partitioner decides it.

Rule: the last 100,000 keys are remembered, since murmur2 in Python takes 3-7 µs a key.
"""

from collections.abc import Callable
from functools import lru_cache

from aiokafka.partitioner import murmur2

REMEMBERED_KEYS = 100_000


def hashed(partitions: int) -> Callable[[str], int]:
    """The partition of a key's UTF-8 bytes if there are this many partitions."""

    @lru_cache(maxsize=REMEMBERED_KEYS)
    def partition_of(key: str) -> int:
        return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)

    return partition_of
