"""When a store of obstore is replaced, with all its connections."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from penstock.adapters.http.connections import AGE_S, SILENCE_S
from penstock.adapters.s3.obstore_client import MAX_STORES, KeptStores
from penstock.tools.simulation.virtual_time import virtual_time


class Stores:
    """Opens stores, each of which is its bucket and its number."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.kept = KeptStores(cast("Any", self._open))
        self.took_s: dict[int, float] = {}

    def _open(self, bucket: str) -> tuple[str, int]:
        self.opened[bucket] += 1
        return bucket, self.opened[bucket]

    async def ask(self, bucket: str = "b") -> int:
        """The number of the store that answered."""

        async def question(store: Any) -> int:
            await asyncio.sleep(self.took_s.get(store[1], 0.01))
            return cast("int", store[1])

        store, answer = await self.kept.ask(bucket, question)
        assert cast("Any", store) == (bucket, answer)
        return answer


@virtual_time
async def test_a_store_ends_by_age_however_busy_it_is() -> None:
    stores = Stores()
    for _ in range(int(10 * AGE_S)):
        await stores.ask()
        await asyncio.sleep(1)
    assert 7 <= stores.opened["b"] <= 15


@virtual_time
async def test_a_silent_store_is_replaced_and_asked_once_more() -> None:
    stores = Stores()
    assert await stores.ask() == 1
    stores.took_s = {1: 60.0}
    began_s = asyncio.get_running_loop().time()
    assert await asyncio.gather(*[stores.ask() for _ in range(5)]) == [2] * 5
    assert asyncio.get_running_loop().time() - began_s < SILENCE_S + 1
    assert stores.opened["b"] == 2


@virtual_time
async def test_a_store_that_is_slow_has_the_time_that_it_takes() -> None:
    stores = Stores()
    stores.took_s = dict.fromkeys(range(1, 9), 2 * SILENCE_S)
    for _ in range(3):
        assert await stores.ask() == 1


@virtual_time
async def test_no_more_stores_are_kept_than_the_bound() -> None:
    stores = Stores()
    for bucket in range(MAX_STORES + 1):
        await stores.ask(str(bucket))
    assert await stores.ask(str(MAX_STORES)) == 1
    assert await stores.ask("0") == 2, "the one that was not used for longest was dropped"


@virtual_time
async def test_an_error_is_the_callers() -> None:
    stores = Stores()

    async def fails(_: Any) -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await stores.kept.ask("b", fails)
