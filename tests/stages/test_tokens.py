"""What a model of language reads and writes is counted, with its price; refused rows count, too."""

from collections.abc import Sequence

import pytest

from penstock.core.rows.payload import Payload
from penstock.ports import Answers, Tokens
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end


async def says(payloads: Sequence[Payload]) -> Answers:
    rows = sum(payload.rows for payload in payloads)
    return Answers([b"null"] * rows, {0: "I refuse"}, tokens=Tokens(100 * rows, 10 * rows))


@virtual_time
async def test_tokens_are_counted_by_kind_and_priced() -> None:
    world = World().with_settings(token_prices=(2e-6, 8e-6))
    world.model.script = says
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    value = world.telemetry.registry.get_sample_value
    assert value("penstock_model_tokens_total", {"kind": "read"}) == 300
    assert value("penstock_model_tokens_total", {"kind": "written"}) == 30
    assert value("penstock_model_tokens_cost_total") == pytest.approx(300 * 2e-6 + 30 * 8e-6)
    assert [record["row"] for record in world.records() if "error" in record] == [0]
