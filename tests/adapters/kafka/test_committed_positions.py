"""Where the group is: what the broker did not say is never taken for "nowhere"."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.protocol.commit import (
    OffsetFetchRequest,
    OffsetFetchResponse_v1,
    OffsetFetchResponse_v3,
)

from penstock.adapters.kafka.client import translated
from penstock.adapters.kafka.positions import positions
from penstock.adapters.kafka.source import Gone, lost_records
from penstock.errors import EXIT_USAGE, Fatal, PenstockError, Transient
from penstock.ports import Commit, Where
from tests.support.partitions import P0, P1

Entry = tuple[int, int, str | None, int]

# As Kafka says it from version 2 on: no partitions, and the error beside them.
LOADING, NOT_AVAILABLE, MOVED, UNAUTHORIZED = 14, 15, 16, 30


class Coordinator:
    """Answers one question; through the wire's form, so that it is what a broker could say."""

    def __init__(self, answer: Any) -> None:
        self._answer = type(answer).decode(io.BytesIO(answer.encode()))
        self.asked: list[str] = []

    async def coordinator_lookup(self, kind: int, group: str) -> int:
        self.asked.append(group)
        return 1

    async def send(self, node: int, request: OffsetFetchRequest) -> Any:
        return self._answer


def v3(entries: Sequence[Entry], code: int = 0) -> Any:
    return OffsetFetchResponse_v3(0, [("refs", list(entries))] if entries else [], code)


def v1(entries: Sequence[Entry]) -> Any:
    return OffsetFetchResponse_v1([("refs", list(entries))])


async def ask(answer: Any) -> dict[Where, Commit | None]:
    return dict(await positions(Coordinator(answer), "g", [P0, P1]))


@pytest.mark.parametrize("version", [v1, v3])
async def test_only_an_explicit_minus_one_is_a_partition_without_a_commit(
    version: Callable[[Sequence[Entry]], Any],
) -> None:
    found = await ask(version([(0, 400, "p1:0", 0), (1, -1, "", 0)]))
    assert found == {P0: Commit(400, "p1:0"), P1: None}


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, MOVED])
async def test_a_coordinator_that_cannot_answer_now_is_asked_again(code: int) -> None:
    with pytest.raises(Transient), translated("a question"):
        await ask(v3([], code))


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, MOVED])
async def test_the_error_of_one_partition_is_told_as_what_it_is(code: int) -> None:
    with pytest.raises(kafka_errors.for_code(code)):
        await ask(v3([(0, 400, "", 0), (1, -1, "", code)]))


async def test_a_partition_that_the_answer_leaves_out_is_no_partition_without_a_commit() -> None:
    with pytest.raises(Transient, match="did not say"):
        await ask(v3([(0, 400, "", 0)]))


async def test_a_group_that_is_not_ours_to_read_is_a_matter_of_settings() -> None:
    with pytest.raises(Fatal) as caught, translated("a question"):
        await ask(v3([], UNAUTHORIZED))
    assert caught.value.exit_code == EXIT_USAGE


def test_the_code_of_a_lost_position_in_an_answer_about_the_group_loses_no_position() -> None:
    with pytest.raises(Gone) as lost, translated("a read"):
        raise lost_records(kafka_errors.OffsetOutOfRangeError({TopicPartition(*P0): 400}))
    assert lost.value.offsets == {TopicPartition(*P0): 400}
    with pytest.raises(PenstockError), translated("a read"):
        raise lost_records(kafka_errors.OffsetOutOfRangeError())
