"""The partition of a key.

Rule: it is chosen as Java's default partitioner chooses it (murmur2).
"""

from collections.abc import Callable
from functools import lru_cache

from aiokafka.partitioner import murmur2

# The partitions of at most this many keys are remembered, because murmur2 in Python takes 3-7 µs a
# key.
REMEMBERED_KEYS = 100_000


def hashed(partitions: int) -> Callable[[bytes], int]:
    """A function from a key to its partition in a topic with this many partitions."""

    @lru_cache(maxsize=REMEMBERED_KEYS)
    def partition_of(key: bytes) -> int:
        return int((murmur2(key) & 0x7FFFFFFF) % partitions)

    return partition_of
