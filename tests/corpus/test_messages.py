"""Every hostile message between good ones: answered as its table says, and nobody else suffers."""

import pytest

from penstock.formats.runs import RowOptions
from penstock.tools.simulation.virtual_time import virtual_time
from tests.corpus.cases import Message, words
from tests.corpus.messages import MESSAGES
from tests.corpus.running import (
    OVERDRAFT_BYTES,
    add_neighbour,
    answered,
    check_letters,
    check_neighbours,
    run,
    said,
    world,
)


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case.name)
@virtual_time
async def test_a_hostile_message_is_answered_and_its_neighbours_are_delivered(
    case: Message,
) -> None:
    there = world(RowOptions())
    add_neighbour(there, "before")
    there.source.append(case.value, key=case.kafka_key)
    add_neighbour(there, "after")
    peak_bytes = await run(there)
    by_offset = answered(there)
    assert said(by_offset.get(1, [])) == words(case.answer)
    check_neighbours(by_offset, 0, 2)
    check_neighbours(answered(there, partition=1), 0, 1)
    check_letters(there, case.answer)
    assert peak_bytes < OVERDRAFT_BYTES


@virtual_time
async def test_all_hostile_messages_together_leave_their_neighbours_alone() -> None:
    there = world(RowOptions())
    for number, case in enumerate(MESSAGES):
        there.source.append(case.value, key=case.kafka_key)
        there.announce(f"good-{number}.csv", b"1,2\n")
    await run(there)
    by_offset = answered(there)
    for number, case in enumerate(MESSAGES):
        assert said(by_offset.get(2 * number, [])) == words(case.answer), case.name
        assert said(by_offset[2 * number + 1]) == ["row"], case.name


def test_names_are_unique() -> None:
    assert len({case.name for case in MESSAGES}) == len(MESSAGES)
