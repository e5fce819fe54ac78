"""What the adapter of the Open Inference Protocol sends, and what it makes of servers that fail."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
import pytest
from yarl import URL

from penstock import config
from penstock.adapters.model_servers.oip.model import LOOK_AGAIN_S, Description, OipModel
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import (
    EXIT_USAGE,
    Fatal,
    Poison,
    Rejected,
    Transient,
    Unreachable,
)
from penstock.tools.simulation.virtual_time import virtual_time
from tests.adapters.model_servers.contract import expect
from tests.support.oip_models import ROWS, Described, Outputs
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


async def test_an_output_that_was_asked_for_and_is_missing_is_a_mismatch() -> None:
    async with OipServer() as server, connected(server, outputs=["label", "score"]) as model:
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        server.fail_next("an_output_less")
        with pytest.raises(Poison, match="label is missing") as caught:
            await model.predict([Matrix(NUMBERS)])
        assert caught.value.code == "model_mismatch"


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
