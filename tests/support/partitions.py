"""Partitions of the topic `refs`, which most tests name by their numbers."""

from collections.abc import Mapping
from typing import TypeVar

from penstock.ports import Where

T = TypeVar("T")


def where(partition: int) -> Where:
    return Where("refs", partition)


P0, P1, P2 = map(where, range(3))


def by_number(found: Mapping[Where, T]) -> dict[int, T]:
    return {one.partition: value for one, value in found.items()}
