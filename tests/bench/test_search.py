"""Finding and proving the largest number of streams, on trials made up here."""

import pytest

from penstock.tools.bench.streams import bisect, prove


class Trials:
    """Trials in which up to `limit` streams hold. It keeps the numbers that were tried."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tried: list[int] = []

    async def __call__(self, streams: int) -> bool:
        self.tried.append(streams)
        return streams <= self.limit


@pytest.mark.parametrize("limit", [0, 1, 2, 31, 32, 33, 63, 64, 99])
async def test_the_search_finds_the_largest_number_that_holds(limit: int) -> None:
    trials = Trials(limit)
    assert await bisect(trials, most=64, first=32) == min(limit, 64)
    assert len(set(trials.tried)) <= 7


async def test_one_miss_is_noise_and_two_are_a_limit() -> None:
    tried: list[int] = []

    async def holds(streams: int) -> bool:
        tried.append(streams)
        is_noisy = streams == 32 and tried.count(32) == 1
        return streams <= 40 and not is_noisy

    assert await bisect(holds, most=64, first=32) == 40
    assert (tried.count(32), tried.count(48), tried.count(40)) == (2, 2, 1)


async def test_the_search_never_tries_more_than_the_most() -> None:
    trials = Trials(1_000)
    assert await bisect(trials, most=10, first=500) == 10
    assert max(trials.tried) == 10


async def test_a_candidate_that_is_proven_is_the_result() -> None:
    assert await prove(Trials(40), candidate=40) == 40


async def test_a_candidate_that_is_not_proven_gives_way_to_a_lower_one() -> None:
    trials = Trials(37)
    assert await prove(trials, candidate=40) == 36
    assert trials.tried == [40, 38, 36]


async def test_the_proof_gives_up_after_a_few_candidates() -> None:
    trials = Trials(1)
    assert await prove(trials, candidate=40) == 0
    assert len(trials.tried) == 4


async def test_without_a_candidate_the_result_is_0() -> None:
    trials = Trials(40)
    assert await prove(trials, candidate=0) == 0
    assert trials.tried == []
