"""Chooses the partition of a key in the way of Java's default partitioner (murmur2).

Rule: the partitions of the last 100,000 keys are remembered, because murmur2 in Python takes 3-7 µs
a key.
"""

from collections.abc import Callable
from functools import lru_cache

from aiokafka.partitioner import murmur2

REMEMBERED_KEYS = 100_000


def hashed(partitions: int) -> Callable[[str], int]:
    """A function from a key to its partition in a topic with this many partitions. The function
    hashes the UTF-8 bytes of the key.
    """

    @lru_cache(maxsize=REMEMBERED_KEYS)
    def partition_of(key: str) -> int:
        return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)

    return partition_of
