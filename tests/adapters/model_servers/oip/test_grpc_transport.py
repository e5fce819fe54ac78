"""What the gRPC library makes of streams that end otherwise than by a server's own status."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

from penstock import config
from penstock.adapters.http.connections import SILENCE_S, SPREAD
from penstock.adapters.model_servers.oip.grpc_calls import READING_TRIES, GrpcWire
from penstock.adapters.model_servers.oip.grpc_protocol import MESSAGES
from penstock.adapters.model_servers.oip.inputs import fill
from penstock.adapters.model_servers.oip.outputs import OutputTensor
from penstock.adapters.model_servers.oip.signature import Filled, Signature, Tensor
from penstock.core.rows.payload import Matrix
from penstock.errors import HungUp, Poison, Rejected
from tests.support import raw_grpc_server as raw
from tests.support.forgetful_way import way_to
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.raw_grpc_server import RawGrpcServer

ROW = fill(Signature((Tensor("x", "FP32", (1,)),)), [Matrix(np.ones((1, 1), "<f4"))])
ANSWER = MESSAGES["ModelInferResponse"](
    outputs=[{"name": "y", "datatype": "FP32", "shape": [1]}], raw_output_contents=[b"\0\0\0\0"]
).SerializeToString()
Answer = Callable[[int], bytes]


def whole(stream: int) -> bytes:
    return raw.message(ANSWER)(stream) + raw.status(0)(stream)


def after(begin: Answer, end: Answer) -> Answer:
    return lambda stream: begin(stream) + end(stream)


async def infer(server: RawGrpcServer) -> tuple[list[OutputTensor], Filled]:
    wire = GrpcWire(msgspec.convert({"url": server.url, "name": "rows"}, config.Model))
    async with aclosing(wire):
        return await wire.infer(ROW, "1", ())


@pytest.mark.parametrize(
    "broken",
    [
        *map(raw.reset, (0, 1, 2, 3, 8, 13)),
        after(raw.message(ANSWER), raw.reset(2)),
        after(raw.message(ANSWER), raw.reset(0)),
        raw.cut_short(ANSWER),
        raw.page(500),
        raw.page(400),
        after(raw.message(ANSWER, flag=1), raw.status(0)),
        raw.nothing(13),
        raw.nothing(2),
        raw.nothing(99),
    ],
)
async def test_a_stream_without_the_servers_own_word_is_no_answer(broken: Answer) -> None:
    async with RawGrpcServer(broken) as server:
        with pytest.raises(HungUp):
            await infer(server)
        assert server.calls == 1


@pytest.mark.parametrize("code", [13, 2, 3])
async def test_what_the_server_says_of_the_rows_is_a_refusal(code: int) -> None:
    said = after(raw.message(b""), raw.status(code, "ValueError: too cold"))
    async with RawGrpcServer(said) as server:
        with pytest.raises(Rejected, match="too cold"):
            await infer(server)


@pytest.mark.parametrize("unread", [raw.nothing(), after(raw.message(b"\x08"), raw.status(0))])
async def test_an_answer_that_cannot_be_read_is_asked_for_again(unread: Answer) -> None:
    async with RawGrpcServer(unread, whole) as server:
        outputs, _ = await infer(server)
        assert [output.name for output in outputs] == ["y"]
        assert server.calls == 2


@pytest.mark.parametrize("unread", [raw.nothing(), after(raw.message(b"\x08"), raw.status(0))])
async def test_answers_that_cannot_be_read_are_a_mismatch_in_the_end(unread: Answer) -> None:
    async with RawGrpcServer(unread) as server:
        with pytest.raises(Poison, match="without a message") as caught:
            await infer(server)
        assert caught.value.code == "model_mismatch"
        assert server.calls == READING_TRIES


async def test_a_call_over_a_forgotten_channel_goes_over_another() -> None:
    now_s = asyncio.get_running_loop().time
    async with (
        OipGrpcServer() as server,
        way_to(urlsplit(server.url).netloc) as way,
    ):
        settings = {"url": f"grpc://{way.address}", "name": "rows"}
        wire = GrpcWire(msgspec.convert(settings, config.Model))
        async with aclosing(wire):
            for _ in range(SPREAD):
                await wire.check_ready()
            assert way.forget() == SPREAD
            began_s = now_s()
            for _ in range(4):
                await wire.check_ready()
            assert SILENCE_S <= now_s() - began_s < 2 * SILENCE_S, "one was waited for"
