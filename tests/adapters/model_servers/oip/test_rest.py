"""What the adapter of the Open Inference Protocol sends, and what it makes of servers that fail."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from yarl import URL

from penstock import config
from penstock.adapters.model_servers.oip.model import LOOK_AGAIN_S, Description, OipModel
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import (
    EXIT_USAGE,
    Fatal,
    HungUp,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    Unreachable,
)
from penstock.ports import Answers
from penstock.simulation.virtual_time import virtual_time
from tests.adapters.model_servers.contract import expect
from tests.adapters.model_servers.hurry import in_a_hurry
from tests.support.oip_models import ROWS, Described, Fault, Outputs
from tests.support.oip_server import Manner, OipServer
from tests.support.reference_model import random_rows

NUMBERS = random_rows(4)


def connected(server: OipServer, columns: int | None = None, **settings: Any) -> aclosing[OipModel]:
    known = {"url": server.url, "request": "float32"}
    made = msgspec.convert(known | settings, config.Model)
    return aclosing(OipModel(made, RestWire(made), columns))


@pytest.mark.parametrize(
    ("manner", "expected"), [("triton", [True]), ("kserve", [True]), ("mlserver", [False])]
)
async def test_binary_tensors_are_sent_where_the_server_takes_them(
    manner: Manner, expected: list[bool]
) -> None:
    async with OipServer(manner) as server, connected(server) as model:
        for _ in range(3):
            expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        assert [is_binary for is_binary, _, _ in server.requests] == expected * 3


async def test_bad_rows_in_the_first_request_do_not_decide_what_the_server_takes() -> None:
    async with OipServer("kserve") as server, connected(server) as model:
        server.fail_next("model_raised", "model_raised")
        with pytest.raises(Rejected):
            await model.predict([Matrix(NUMBERS)])
        await model.predict([Matrix(NUMBERS)])
        assert [is_binary for is_binary, _, _ in server.requests] == [True]


@pytest.mark.parametrize(("binary", "expected"), [("yes", True), ("no", False)])
async def test_the_settings_decide_before_the_server_is_asked(
    binary: str, *, expected: bool
) -> None:
    async with OipServer("kserve") as server, connected(server, binary=binary) as model:
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        assert [is_binary for is_binary, _, _ in server.requests] == [expected]


async def test_every_request_has_an_id_of_its_own() -> None:
    async with OipServer() as server, connected(server) as model:
        for _ in range(3):
            await model.predict([Matrix(NUMBERS)])
        identities = {identity for _, identity, _ in server.requests}
    assert len(identities) == 3
    assert all(identities)


async def test_no_empty_batch_is_ever_sent() -> None:
    async with OipServer() as server, connected(server) as model:
        assert await model.ready()
        assert await model.predict(()) == Answers([], {})
        refused = await model.predict([JsonRows.of([b'"no row"'])])
        assert list(refused.errors) == [0]
        assert server.requests == []


async def test_the_server_is_asked_what_the_model_takes_once_and_again_after_it_was_away() -> None:
    async with OipServer() as server, connected(server) as model:
        for _ in range(3):
            await model.predict([Matrix(NUMBERS)])
        assert server.looks == 1
        server.fail_next("disconnected")
        with pytest.raises(Unreachable):
            await model.predict([Matrix(NUMBERS)])
        await model.predict([Matrix(NUMBERS)])
        assert server.looks == 2


async def test_no_row_is_blamed_for_a_model_that_was_replaced_while_its_server_ran() -> None:
    async with OipServer() as server, connected(server) as model:
        await model.predict([Matrix(NUMBERS)])
        server.model = ROWS._replace(inputs=[("renamed", *ROWS.inputs[0][1:])])
        server.fail_next("model_raised")
        with pytest.raises(Transient, match="the model was replaced"):
            await model.predict([Matrix(NUMBERS[:1])])


async def test_rows_that_fit_only_the_model_of_now_are_not_refused_by_the_former_one() -> None:
    narrow = ROWS._replace(inputs=[("x", "FP32", [-1, 12])])
    async with OipServer(model=narrow) as server, connected(server) as model:
        await model.predict(())
        server.model = ROWS
        with pytest.raises(Transient, match="the model was replaced"):
            await model.predict([Matrix(NUMBERS[:1])])
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


class Refusing:
    """A wire on which the model refuses everything; counts how often it was asked what it takes."""

    def __init__(self) -> None:
        self.looks = 0

    async def describe(self) -> Description:
        self.looks += 1
        return Description({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}]}, {})

    url = URL("http://nowhere")

    async def check_ready(self) -> None: ...

    async def infer(self, *_: object) -> Any:
        raise Rejected("model_rejected", "no")

    def request(self, *_: object) -> Any: ...

    def forget(self) -> None: ...

    async def aclose(self) -> None: ...


@virtual_time
async def test_refusals_of_several_rows_ask_the_server_anew_once_a_second() -> None:
    async def refused(rows: int) -> int:
        with pytest.raises(Rejected):
            await model.predict([Matrix(NUMBERS[:rows])])
        return wire.looks

    wire = Refusing()
    model = OipModel(config.Model(request="float32"), wire)
    assert [await refused(4), await refused(2)] == [1, 1]
    # A row alone would be blamed.
    assert [await refused(1), await refused(1)] == [2, 3]
    await asyncio.sleep(LOOK_AGAIN_S)
    assert [await refused(4), await refused(2)] == [4, 4]


async def test_more_rows_than_the_server_takes_are_not_sent() -> None:
    async with OipServer(model=ROWS._replace(most_rows=3)) as server, connected(server) as model:
        with pytest.raises(Poison, match="3 rows in one request") as caught:
            await model.predict([Matrix(NUMBERS)])
        assert (caught.value.code, server.requests) == ("too_large", [])
        assert model.most_rows == 3
        expect(await model.predict([Matrix(NUMBERS[:3])]), NUMBERS[:3])


@pytest.mark.parametrize("manner", ["triton", "kserve"])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("model_raised", Rejected),
        ("unavailable", Overloaded),
        ("loading", Transient),
        ("no_model", Fatal),
        ("denied", Fatal),
        ("too_large", Poison),
        ("disconnected", HungUp),
        ("cut", HungUp),
        ("one_too_few", Poison),
        ("one_too_many", Poison),
        ("transposed", Poison),
        ("nonsense", Rejected),
    ],
)
async def test_a_fault_is_told_by_its_kind_and_the_next_request_is_answered(
    manner: Manner, fault: Fault, expected: type[PenstockError]
) -> None:
    async with OipServer(manner) as server, connected(server, binary="yes") as model:
        await model.predict([Matrix(NUMBERS)])
        server.fail_next(fault)
        with pytest.raises(expected) as caught:
            await model.predict([Matrix(NUMBERS)])
        assert type(caught.value) is expected
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


@pytest.mark.parametrize("fault", ["one_too_few", "one_too_many", "transposed"])
async def test_rows_that_do_not_match_are_a_mismatch(fault: Fault) -> None:
    async with OipServer() as server, connected(server) as model:
        server.fail_next(fault)
        with pytest.raises(Poison, match="was given 4 rows") as caught:
            await model.predict([Matrix(NUMBERS)])
        assert caught.value.code == "model_mismatch"


async def test_outputs_are_known_by_name_not_by_place() -> None:
    async with OipServer() as server, connected(server) as model:
        server.fail_next("turned")
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


async def test_an_output_that_was_asked_for_and_is_missing_is_a_mismatch() -> None:
    async with OipServer() as server, connected(server, outputs=["label", "score"]) as model:
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        server.fail_next("an_output_less")
        with pytest.raises(Poison, match="label is missing") as caught:
            await model.predict([Matrix(NUMBERS)])
        assert caught.value.code == "model_mismatch"


async def test_an_answer_that_is_not_finite_rejects_its_row_alone() -> None:
    async with OipServer("mlserver") as server, connected(server, binary="no") as model:
        server.fail_next("not_a_number")
        answers = await model.predict([Matrix(NUMBERS)])
    assert list(answers.errors) == [0]
    assert "score" in answers.errors[0]


async def test_a_server_that_takes_too_long_is_unreachable() -> None:
    async with OipServer() as server, connected(server) as model:
        await model.predict([Matrix(NUMBERS)])
        server.fail_next("slow")
        assert isinstance(model._wire, RestWire)
        with in_a_hurry(model._wire._http, 0.1), pytest.raises(Unreachable, match="timeout_ms"):
            await model.predict([Matrix(NUMBERS)])


async def test_a_cancelled_call_leaves_the_adapter_usable() -> None:
    async with OipServer() as server, connected(server) as model:
        await model.predict([Matrix(NUMBERS)])
        server.fail_next("slow")
        call = asyncio.create_task(model.predict([Matrix(NUMBERS)]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.release()
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)


async def test_a_server_that_is_away_is_unreachable_and_not_ready() -> None:
    async with OipServer() as server:
        pass
    async with connected(server) as model:
        assert not await model.ready()
        with pytest.raises(Unreachable, match=r"model\.url"):
            await model.predict(())


@pytest.mark.parametrize("manner", ["triton", "mlserver", "kserve"])
@pytest.mark.parametrize("wrong", [{"name": "nope"}, {"version": "9"}])
async def test_a_model_that_is_not_there_is_a_usage_error(
    manner: Manner, wrong: dict[str, Any]
) -> None:
    async with OipServer(manner) as server, connected(server, **wrong) as model:
        assert not await model.ready()
        with pytest.raises(Fatal, match=r"model\.name") as caught:
            await model.predict(())
        assert caught.value.exit_code == EXIT_USAGE


async def test_rows_of_the_wrong_width_are_told_what_the_model_wants() -> None:
    def compute(_: Any) -> Outputs:
        raise AssertionError("nothing is sent")

    model = Described([("x", "INT64", [-1, 12])], compute)
    async with OipServer(model=model) as server, connected(server) as adapter:
        with pytest.raises(Rejected) as caught:
            await adapter.predict([Matrix(NUMBERS)])
    assert str(caught.value) == "the model wants INT64 [-1, 12], the rows have 16 numbers"


async def test_a_width_that_the_settings_tell_is_checked_at_the_start() -> None:
    model = ROWS._replace(inputs=[("x", "INT64", [-1, 12])])
    async with OipServer(model=model) as server, connected(server, columns=16) as adapter:
        with pytest.raises(Fatal, match=r"wants INT64 \[-1, 12\], the rows have 16") as caught:
            await adapter.predict(())
        assert caught.value.exit_code == EXIT_USAGE


async def test_numbers_for_a_model_of_texts_are_a_usage_error_at_the_start() -> None:
    model = ROWS._replace(inputs=[("text", "BYTES", [-1, 1])])
    async with OipServer(model=model) as server, connected(server) as adapter:
        with pytest.raises(Fatal, match=r"model\.request"):
            await adapter.predict(())


@pytest.mark.parametrize("manner", ["triton", "mlserver"])
async def test_texts_go_in_and_come_out(manner: Manner) -> None:
    def upper(inputs: Any) -> Outputs:
        made = np.array([text.decode().upper().encode() for text in inputs["text"].ravel()], object)
        return [("shout", "BYTES", made.reshape(-1, 1))]

    model = Described([("text", "BYTES", [-1, 1])], upper)
    async with OipServer(manner, model) as server, connected(server, request="json") as adapter:
        answers = await adapter.predict(
            [JsonRows.of([b'"gr\xc3\xbc\xc3\x9fe"', b'""', b'{"a":1}'])]
        )
    assert [orjson.loads(one) for one in answers.values] == [
        {"shout": "GRÜSSE"},
        {"shout": ""},
        {"shout": '{"A":1}'},
    ]


@pytest.mark.parametrize("manner", ["triton", "mlserver"])
@pytest.mark.parametrize("rows", ["matrix", "objects", "arrays"])
async def test_columns_are_inputs_by_name(manner: Manner, rows: str) -> None:
    def add(inputs: Any) -> Outputs:
        total = inputs["age"].ravel() * 100 + inputs["size"].sum(axis=1)
        return [("total", "FP64", total.astype(np.float64))]

    model = Described([("age", "INT32", [-1, 1]), ("size", "FP64", [-1, 2])], add)
    payloads: dict[str, Callable[[], Any]] = {
        "matrix": lambda: Matrix(np.array([[1, 2, 3], [4, 5, 6]], np.float32)),
        "objects": lambda: JsonRows.of([b'{"size":[2,3],"age":1}', b'{"age":[4],"size":[5,6]}']),
        "arrays": lambda: JsonRows.of([b"[1,[2,3]]", b"[4,[5,6]]"]),
    }
    form = "float32" if rows == "matrix" else "json"
    async with OipServer(manner, model) as server, connected(server, request=form) as adapter:
        answers = await adapter.predict([payloads[rows]()])
    assert answers.values == [b'{"total":105.0}', b'{"total":411.0}']


async def test_what_the_server_does_not_tell_comes_from_the_settings() -> None:
    silent = ROWS._replace(inputs=[], outputs=[])
    async with OipServer("kserve", silent) as server:
        async with connected(server) as adapter:
            with pytest.raises(Fatal, match=r"model\.inputs"):
                await adapter.predict(())
        async with connected(server, inputs=["x:FP32:16"]) as adapter:
            expect(await adapter.predict([Matrix(NUMBERS)]), NUMBERS)
