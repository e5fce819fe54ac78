"""A commit of many partitions, at a broker that takes only so many bytes at once."""

import pytest

from penstock.adapters.kafka.error_codes import INVALID_COMMIT_OFFSET_SIZE, UNKNOWN_ERROR
from penstock.adapters.kafka.source import COMMIT_BYTES, CommitParts, parts
from penstock.ports import Commit, Where

GROUP, TOPIC = "group", "refs"


class RefusedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def code_of(error: Exception) -> int | None:
    return error.code if isinstance(error, RefusedError) else None


class Broker:
    """Takes at most `most` bytes of metadata at once; else it answers with `code`."""

    def __init__(self, most: int, code: int = UNKNOWN_ERROR) -> None:
        self.most, self.code = most, code
        self.taken: dict[Where, Commit] = {}
        self.tried = 0

    async def commit(self, positions: dict[Where, Commit]) -> None:
        self.tried += 1
        if sum(len(position.metadata) for position in positions.values()) > self.most:
            raise RefusedError(self.code)
        self.taken |= positions


def positions(count: int, metadata: int) -> dict[Where, Commit]:
    return {Where(TOPIC, number): Commit(number, "x" * metadata) for number in range(count)}


async def test_a_thousand_partitions_with_full_metadata_are_five_commits() -> None:
    broker, wanted = Broker(1_048_588), positions(1_000, 4_000)
    await CommitParts(GROUP, code_of).each(wanted, broker.commit)
    assert broker.taken == wanted
    assert broker.tried == 5


async def test_few_partitions_are_one_commit() -> None:
    assert list(parts(positions(200, 4_000), GROUP)) == [positions(200, 4_000)]
    assert COMMIT_BYTES < 1_048_588


@pytest.mark.parametrize("code", [UNKNOWN_ERROR, INVALID_COMMIT_OFFSET_SIZE])
async def test_what_is_refused_as_a_whole_is_tried_in_halves_and_later_at_once(code: int) -> None:
    broker, wanted = Broker(60_000, code), positions(100, 1_100)
    commits = CommitParts(GROUP, code_of)
    await commits.each(wanted, broker.commit)
    assert broker.taken == wanted
    broker.tried, broker.taken = 0, {}
    await commits.each(wanted, broker.commit)
    assert broker.taken == wanted
    assert broker.tried == 2


async def test_a_partition_that_is_refused_alone_is_an_error() -> None:
    broker = Broker(100)
    with pytest.raises(RefusedError):
        await CommitParts(GROUP, code_of).each(positions(2, 200), broker.commit)


async def test_another_error_is_not_tried_in_halves() -> None:
    broker = Broker(10, code=16)
    with pytest.raises(RefusedError):
        await CommitParts(GROUP, code_of).each(positions(8, 200), broker.commit)
    assert broker.tried == 1
