"""Partitions stay where they are; of two members that name one, the later generation keeps it."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from penstock.adapters.kafka.group.sticky import sticky

PARTITIONS = range(4)
CLUSTER: Any = SimpleNamespace(
    topics=lambda: {"refs"}, partitions_for_topic=lambda _topic: set(PARTITIONS)
)


def said_by_a_member(held: Collection[int], generation: int) -> ConsumerProtocolMemberMetadata:
    """What a member says when it joins, after it got these partitions in this generation."""
    member = sticky()
    member.on_assignment(ConsumerProtocolMemberAssignment(0, [("refs", sorted(held))], b""))
    member.on_generation_assignment(generation)
    return member.metadata({"refs"})


def assigned(**members: ConsumerProtocolMemberMetadata) -> dict[str, set[TopicPartition]]:
    found = sticky().assign(CLUSTER, members)
    return {name: set(one.partitions()) for name, one in found.items()}


def parts(*numbers: int) -> set[TopicPartition]:
    return {TopicPartition("refs", number) for number in numbers}


@pytest.mark.parametrize("expelled", ["a", "z"])
def test_what_an_expelled_member_had_stays_with_its_new_owner(expelled: str) -> None:
    """Names that sort before and after the owner's, as the first of equals would get it."""
    members = {
        expelled: said_by_a_member([0, 1], generation=3),
        "m": said_by_a_member([0, 1], generation=4),
        "n": said_by_a_member([2, 3], generation=4),
    }
    found = assigned(**members)
    assert found["m"] <= parts(0, 1)
    assert found["n"] <= parts(2, 3)
    assert len(found["m"]) + len(found["n"]) == 3


def test_nothing_moves_without_need() -> None:
    members = {"a": said_by_a_member([0, 3], 1), "b": said_by_a_member([1, 2], 1)}
    assert assigned(**members) == {"a": parts(0, 3), "b": parts(1, 2)}
