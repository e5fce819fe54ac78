"""The Open Inference Protocol, over REST as each server has it and over gRPC: what both promise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from penstock import config
from penstock.adapters.model_servers.http_calls import ModelHttp
from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire
from penstock.adapters.model_servers.oip.model import OipModel
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import (
    EXIT_USAGE,
    Doubtful,
    Fatal,
    HungUp,
    NoAnswer,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    Unreachable,
)
from penstock.ports import Answers
from tests.adapters.model_servers.contract import expect
from tests.adapters.model_servers.hurry import in_a_hurry
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.oip_models import ROWS, Described, Fault, Outputs
from tests.support.oip_server import OipServer
from tests.support.reference_model import random_rows

NUMBERS = random_rows(4)
Server = OipServer | OipGrpcServer
both = pytest.mark.parametrize("wire", ["triton", "grpc"])


def model_of(server: Server, **settings: Any) -> aclosing[OipModel]:
    known = {"url": server.url, "request": "float32"}
    made = msgspec.convert(known | settings, config.Model)
    wire = RestWire(made) if isinstance(server, OipServer) else GrpcWire(made)
    return aclosing(OipModel(made, wire))


@asynccontextmanager
async def connected(
    wire: Any, described: Described = ROWS, **settings: Any
) -> AsyncIterator[tuple[Server, OipModel]]:
    server = OipGrpcServer(described) if wire == "grpc" else OipServer(wire, described)
    async with server, model_of(server, **settings) as model:
        yield server, model


# How each fault is told, over REST and over gRPC.
FAULTS: dict[Fault, tuple[type[PenstockError], type[PenstockError] | None]] = {
    "model_raised": (Doubtful, Rejected),
    "unavailable": (Overloaded, Overloaded),
    "loading": (Transient, Transient),
    "no_model": (Fatal, Fatal),
    "denied": (Fatal, Fatal),
    "too_large": (Poison, Poison),
    "disconnected": (HungUp, HungUp),
    "cut": (HungUp, None),
    "one_too_few": (Poison, Poison),
    "one_too_many": (Poison, Poison),
    "transposed": (Poison, Poison),
    "nonsense": (Rejected, Poison),
}


@pytest.mark.parametrize(
    ("wire", "fault", "expected"),
    [
        (wire, fault, expected)
        for wire in ("triton", "kserve", "grpc")
        for fault, told in FAULTS.items()
        if (expected := told[wire == "grpc"]) is not None
    ],
)
async def test_a_fault_is_told_by_its_kind_and_the_next_request_is_answered(
    wire: str, fault: Fault, expected: type[PenstockError]
) -> None:
    async with connected(wire, binary="yes") as (server, model):
        await model.predict([Matrix(NUMBERS)])
        server.fail_next(fault)
        with pytest.raises(expected) as caught:
            await model.predict([Matrix(NUMBERS)])
        assert type(caught.value) is expected
        if fault in ("one_too_few", "one_too_many", "transposed"):
            assert getattr(caught.value, "code", "") == "model_mismatch"
            assert "was given 4 rows" in str(caught.value)
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


@pytest.mark.parametrize("wire", ["triton", "mlserver", "grpc"])
async def test_outputs_are_known_by_name_and_what_is_not_finite_rejects_its_row(wire: str) -> None:
    async with connected(wire, binary="no" if wire == "mlserver" else "yes") as (server, model):
        server.fail_next("turned", "not_a_number")
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        answers = await model.predict([Matrix(NUMBERS)])
        assert list(answers.errors) == [0]
        assert "score" in answers.errors[0]


@both
async def test_a_call_ends_at_its_deadline_and_a_cancelled_one_at_once(wire: str) -> None:
    async with connected(wire) as (server, model):
        await model.predict([Matrix(NUMBERS)])
        server.fail_next("slow", "slow")
        calls = model._wire._http if isinstance(model._wire, RestWire) else model._wire
        assert isinstance(calls, ModelHttp | GrpcWire)
        with in_a_hurry(calls, 0.2), pytest.raises(NoAnswer, match="timeout_ms"):
            await model.predict([Matrix(NUMBERS)])
        call = asyncio.create_task(model.predict([Matrix(NUMBERS)]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.release()
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


@both
async def test_no_empty_batch_is_ever_sent_and_every_request_has_an_id_of_its_own(
    wire: str,
) -> None:
    async with connected(wire) as (server, model):
        assert await model.ready()
        assert await model.predict(()) == Answers([], {})
        assert list((await model.predict([JsonRows.of([b'"no row"'])])).errors) == [0]
        assert server.identities == []
        for _ in range(3):
            await model.predict([Matrix(NUMBERS)])
        assert len(set(server.identities)) == 3
        assert all(server.identities)


@both
async def test_more_rows_than_the_server_takes_are_not_sent(wire: str) -> None:
    async with connected(wire, ROWS._replace(most_rows=3)) as (server, model):
        with pytest.raises(Poison, match="3 rows in one request") as caught:
            await model.predict([Matrix(NUMBERS)])
        assert (caught.value.code, server.identities) == ("too_large", [])
        assert model.most_rows == 3
        expect(await model.predict([Matrix(NUMBERS[:3])]), NUMBERS[:3])


@both
async def test_a_server_that_is_away_is_unreachable_and_not_ready(wire: str) -> None:
    async with connected(wire) as (server, _):
        pass
    async with model_of(server) as model:
        assert not await model.ready()
        for payloads in ((), [Matrix(NUMBERS)]):
            with pytest.raises(Unreachable, match=r"model\.url"):
                await model.predict(payloads)


@pytest.mark.parametrize(
    ("wire", "wrong"),
    [
        ("grpc", {"name": "nope"}),
        *((manner, {"name": "nope"}) for manner in ("triton", "mlserver", "kserve")),
        *((manner, {"version": "9"}) for manner in ("triton", "mlserver", "kserve")),
    ],
)
async def test_a_model_that_is_not_there_is_a_usage_error(wire: str, wrong: dict[str, Any]) -> None:
    async with connected(wire, **wrong) as (_, model):
        assert not await model.ready()
        with pytest.raises(Fatal, match=r"model\.name") as caught:
            await model.predict(())
        assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("wire", ["triton", "mlserver", "grpc"])
async def test_texts_go_in_and_come_out(wire: str) -> None:
    def upper(inputs: Any) -> Outputs:
        made = np.array([text.decode().upper().encode() for text in inputs["text"].ravel()], object)
        return [("shout", "BYTES", made.reshape(-1, 1))]

    described = Described([("text", "BYTES", [-1, 1])], upper)
    async with connected(wire, described, request="json") as (_, model):
        answers = await model.predict([JsonRows.of(['"grüße"'.encode(), b'""', b'{"a":1}'])])
    assert [orjson.loads(value) for value in answers.values] == [
        {"shout": "GRÜSSE"},
        {"shout": ""},
        {"shout": '{"A":1}'},
    ]


@pytest.mark.parametrize("wire", ["kserve", "grpc"])
async def test_what_the_server_does_not_tell_comes_from_the_settings(wire: str) -> None:
    silent = ROWS._replace(inputs=[], outputs=[])
    async with connected(wire, silent) as (server, model):
        with pytest.raises(Fatal, match=r"model\.inputs"):
            await model.predict(())
        async with model_of(server, inputs=["x:FP32:16"]) as told:
            expect(await told.predict([Matrix(NUMBERS)]), NUMBERS)
