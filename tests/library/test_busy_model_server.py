"""A server that is busy with the requests of others, and says so only by a bare 500: no good row is
rejected. Rows that the model itself raises for are.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Prediction, predict
from tests.support.json_server import Refused, json_server

ROWS = 40


@asynccontextmanager
async def busy_server(share: float, bad: int | None = None) -> AsyncIterator[str]:
    """Refuses this share of the requests with rows. For a batch with the row `[bad]` the model
    raises.
    """
    chance = random.Random(38)

    def answer(rows: list[list[int]]) -> list[int]:
        if chance.random() < share or [bad] in rows:
            raise Refused(500, {"error": "Internal Server Error"})
        return [row[0] for row in rows]

    async with json_server("/m", answer) as server:
        yield f"{server.url}/m"


async def asked(folder: Path, url: str, canary: str | None) -> tuple[list[Any], list[Prediction]]:
    """The predictions in order, and the rows that were rejected."""
    for name in range(4):
        first = name * ROWS // 4
        text = "".join(f"{first + row}\n" for row in range(ROWS // 4))
        (folder / f"{name}.csv").write_text(text)
    predictions = predict(
        str(folder / "*.csv"),
        model=url,
        protocol="http",
        config={
            "model": {"canary": canary} if canary else {},
            "window": {"max_rows": 10},
            "rows": {"header": "no"},
        },
    )
    found = [prediction async for prediction in predictions if prediction.row is not None]
    return [one.prediction for one in found if not one.error], [one for one in found if one.error]


@pytest.mark.parametrize("canary", [None, "[1000]"])
@pytest.mark.parametrize("share", [0.0, 0.6])
async def test_no_good_row_is_rejected_for_the_load_that_others_make(
    tmp_path: Path, canary: str | None, share: float
) -> None:
    async with busy_server(share) as url:
        answered, rejected = await asked(tmp_path, url, canary)
    assert (answered, rejected) == (list(range(ROWS)), [])


@pytest.mark.parametrize("canary", [None, "[1000]"])
@pytest.mark.parametrize("share", [0.0, 0.3])
async def test_a_row_for_which_the_model_raises_is_found_even_if_the_server_is_busy(
    tmp_path: Path, canary: str | None, share: float
) -> None:
    async with busy_server(share, 17) as url:
        answered, rejected = await asked(tmp_path, url, canary)
    assert answered == [row for row in range(ROWS) if row != 17]
    (one,) = rejected
    assert one.error is not None
    assert one.object is not None
    assert (one.error.code, one.object.key[-5:], one.row) == ("model_rejected", "1.csv", 7)
