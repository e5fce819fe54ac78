"""Partitions stay where they are; of two members that name one, the later generation keeps it."""

from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.kafka.group.assignors import divided, sticky

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
    assignment = sticky().assign(CLUSTER, members)
    return {name: set(one.partitions()) for name, one in assignment.items()}


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
    assignment = assigned(**members)
    assert assignment["m"] <= parts(0, 1)
    assert assignment["n"] <= parts(2, 3)
    assert len(assignment["m"]) + len(assignment["n"]) == 3


def test_nothing_moves_without_need() -> None:
    members = {"a": said_by_a_member([0, 3], 1), "b": said_by_a_member([1, 2], 1)}
    assert assigned(**members) == {"a": parts(0, 3), "b": parts(1, 2)}


def test_a_member_with_other_topics_gets_none_of_what_it_does_not_read() -> None:
    """As while a worker with a further topic takes the place of one without."""
    cluster: Any = SimpleNamespace(
        topics=lambda: {"refs", "more"}, partitions_for_topic=lambda _topic: set(PARTITIONS)
    )
    members = {"old": sticky().metadata({"refs"}), "new": sticky().metadata({"refs", "more"})}
    found = {name: set(one.partitions()) for name, one in sticky().assign(cluster, members).items()}
    assert {one.topic for one in found["old"]} == {"refs"}
    assert len(found["old"] | found["new"]) == 2 * len(PARTITIONS)


Names = st.sampled_from("abcdefgh")


@st.composite
def groups(draw: st.DrawFn) -> tuple[set[TopicPartition], dict[str, Any]]:
    """Partitions, and what members had: some of it is gone, some is claimed by several."""
    sizes = draw(st.dictionaries(st.sampled_from(["t0", "t1", "t2"]), st.integers(1, 12)))
    partitions = {TopicPartition(topic, n) for topic, size in sizes.items() for n in range(size)}
    claims = st.sets(st.builds(TopicPartition, st.sampled_from(["t0", "t1"]), st.integers(0, 14)))
    had = draw(st.dictionaries(Names, st.tuples(st.integers(-1, 3), claims), min_size=1))
    return partitions, had


@given(groups())
def test_shares_are_even_and_nothing_moves_that_need_not(
    group: tuple[set[TopicPartition], dict[str, Any]],
) -> None:
    partitions, had = group
    found = divided(partitions, had)
    assert found.keys() == had.keys()
    assert sorted(one for its in found.values() for one in its) == sorted(partitions)
    sizes = [len(its) for its in found.values()]
    assert max(sizes) - min(sizes) <= 1
    owned = {
        name: {
            one
            for one in its & partitions
            if (generation, name)
            == max((other[0], its_name) for its_name, other in had.items() if one in other[1])
        }
        for name, (generation, its) in had.items()
    }
    # As many stay as even shares allow; which members keep one more does not matter.
    least, more = divmod(len(partitions), len(had))
    larger = sorted((len(its) > least for its in owned.values()), reverse=True)[:more]
    most = sum(min(len(its), least) for its in owned.values()) + sum(larger)
    assert sum(len(owned[name] & set(its)) for name, its in found.items()) == most


def test_of_several_topics_each_member_has_some_of_each() -> None:
    partitions = [TopicPartition(topic, n) for topic in ("t0", "t1") for n in range(8)]
    alone = divided(partitions, {"a": (-1, [])})
    for found in (
        divided(partitions, {"a": (-1, []), "b": (-1, [])}),
        divided(partitions, {"a": (1, alone["a"]), "b": (-1, [])}),
    ):
        for its in found.values():
            assert Counter(one.topic for one in its) == {"t0": 4, "t1": 4}
