"""Every hostile answer to a batch of hostile and good rows: only the hostile ones may suffer.

On a real socket and real time: the adapter is the one that runs.
"""

import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.formats.runs import RowOptions
from tests.corpus.answers import ANSWERS
from tests.corpus.cases import Said, words
from tests.corpus.model_server import HOSTILE, model_server
from tests.corpus.running import (
    add_neighbour,
    answered,
    check_letters,
    check_neighbours,
    run,
    said,
    world,
)

# Long enough for a loaded machine to answer 100 MiB, where nothing drips.
TIMEOUT_MS = 20_000
DRIP_TIMEOUT_MS = 300


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.name)
async def test_a_hostile_answer_costs_the_rows_it_is_about_and_no_other(case: Said) -> None:
    there = world(RowOptions(form="json")).with_settings(commit_interval_s=0.01)
    async with model_server(case) as url:
        timeout_ms = DRIP_TIMEOUT_MS if case.drips else TIMEOUT_MS
        settings = {"url": url, "request": "json", "timeout_ms": timeout_ms}
        model = TorchServeModel(msgspec.convert(settings, config.Model))
        add_neighbour(there, "before")
        there.announce("hostile.csv", b"%d,1\n%d,2\n" % (HOSTILE, HOSTILE + 1))
        add_neighbour(there, "after")
        try:
            there.model.script = model.predict
            await run(there)
        finally:
            await model.aclose()
    by_offset = answered(there)
    assert said(by_offset[1]) == words(case.answer), [record.error for record in by_offset[1]]
    check_neighbours(by_offset, 0, 2)
    check_neighbours(answered(there, partition=1), 0, 1)
    check_letters(there, case.answer)


def test_names_are_unique() -> None:
    assert len({case.name for case in ANSWERS}) == len(ANSWERS)
