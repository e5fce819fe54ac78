"""A whole pipeline before servers of the Open Inference Protocol that fail in every way they were
seen to: every row is answered once and in order, and only the bad ones are rejected.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock import config
from penstock.adapters.model_servers.asked_again_alone import AskedAgainAlone
from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire
from penstock.adapters.model_servers.oip.model import OipModel
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.core.rows.payload import Matrix
from penstock.core.window.window import WindowLimits
from penstock.formats.runs import RowOptions
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.oip_models import Described, Fault, Outputs
from tests.support.oip_server import OipServer
from tests.support.pipelines import World, csv, run_to_end

ROWS = 60
BAD = (7, 8, 40)

Server = OipServer | OipGrpcServer


def sums(inputs: Any) -> Outputs:
    """Raises for the whole request if a bad row is in it."""
    rows = inputs["x"]
    if np.isin(rows[:, 0], BAD).any():
        raise ValueError("a row is bad")
    return [("number", "INT64", rows[:, 0].astype(np.int64)), ("sum", "FP32", rows.sum(axis=1))]


def healthy(inputs: Any) -> Outputs:
    rows = inputs["x"]
    return [("number", "INT64", rows[:, 0].astype(np.int64)), ("sum", "FP32", rows.sum(axis=1))]


def described(compute: Any) -> Described:
    return Described([("x", "FP32", [-1, 2])], compute, most_rows=16)


@asynccontextmanager
async def world_before(server: Server, **settings: Any) -> AsyncIterator[World]:
    known = {"url": server.url, "request": "float32", "timeout_ms": 300}
    made = msgspec.convert(known | settings, config.Model)
    wire = RestWire(made) if isinstance(server, OipServer) else GrpcWire(made)
    model = AskedAgainAlone(OipModel(made, wire))
    world = World().with_settings(
        rows=RowOptions(form="matrix"),
        canary=Matrix(np.array([[1000, 1000]], np.float32)),
        window=WindowLimits(max_rows=16, max_bytes=1 << 20, max_wait_s=0.001),
        commit_interval_s=0.01,
    )
    # The pipeline's other services are in memory.
    world.model = model  # type: ignore[assignment]
    try:
        yield world
    finally:
        await model.aclose()


@pytest.fixture(params=["rest", "json", "grpc"])
async def make(request: pytest.FixtureRequest) -> Any:
    def made(compute: Any) -> Server:
        model = described(compute)
        if request.param == "grpc":
            return OipGrpcServer(model)
        return OipServer("triton" if request.param == "rest" else "mlserver", model)

    return made


async def numbers(world: World, records: int) -> list[tuple[int, bool]]:
    """Row and whether it was rejected, of every record; predictions are the rows' own."""
    await run_to_end(world, records)
    found = []
    for record in world.records():
        prediction = record["prediction"]
        if prediction is not None:
            assert prediction == {"number": record["row"], "sum": 2.0 * record["row"]}
        found.append((record["row"], "error" in record))
    return found


async def test_exactly_the_rows_that_make_the_model_raise_are_rejected(make: Any) -> None:
    async with make(sums) as server, world_before(server) as world:
        for key in ("a.csv", "b.csv"):
            world.announce(key, csv(ROWS))
        expected = [(row, row in BAD) for row in range(ROWS)]
        assert await numbers(world, 2) == expected * 2
        assert all(letter["code"] == "model_rejected" for letter in world.dead_letters())


@pytest.mark.parametrize(
    "faults",
    [
        ("disconnected",) * 3,
        ("unavailable",) * 5,
        ("loading",) * 3,
        ("slow",),
        ("one_too_few", "one_too_many", "transposed"),
        ("an_output_less",),
        ("turned",) * 3,
        ("nonsense", "model_raised", "nonsense"),
    ],
    ids=lambda faults: "-".join(dict.fromkeys(faults)),
)
async def test_a_server_that_fails_for_a_while_costs_no_row_and_blames_none(
    make: Any, faults: tuple[Fault, ...]
) -> None:
    async with make(healthy) as server, world_before(server, outputs=["number", "sum"]) as world:
        server.fail_next(*faults)
        world.announce("a.csv", csv(ROWS))
        assert await numbers(world, 1) == [(row, False) for row in range(ROWS)]
        assert world.dead_letters() == []


async def test_an_answer_that_is_not_finite_rejects_its_row_alone(make: Any) -> None:
    def sick(inputs: Any) -> Outputs:
        outputs = healthy(inputs)
        outputs[1][2][np.isin(inputs["x"][:, 0], BAD)] = np.nan
        return outputs

    async with make(sick) as server, world_before(server) as world:
        world.announce("a.csv", csv(ROWS))
        assert await numbers(world, 1) == [(row, row in BAD) for row in range(ROWS)]
