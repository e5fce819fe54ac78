"""A model server that means harm, or is badly broken: every answer ends as one of our errors."""

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import orjson
import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.model_servers.http_calls import MOST_ANSWER_BYTES, AnswerBounds
from penstock.adapters.model_servers.refusals import complaint
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.core.rows.payload import JsonRows
from penstock.errors import NoAnswer, Poison, Rejected, Unreachable
from tests.adapters.model_servers.hurry import in_a_hurry
from tests.support.http_server import http_server

ROW = JsonRows.of([b"[1]"])
MIB = 1 << 20

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def model_behind(
    answer: Answer,
    answer_bytes_per_row: int = config.ANSWER_BYTES_PER_ROW,
    **settings: object,
) -> AsyncIterator[TorchServeModel]:
    async with http_server(answer) as url:
        known: dict[str, object] = {"url": url}
        model = TorchServeModel(
            msgspec.convert(known | settings, config.Model),
            AnswerBounds(answer_bytes_per_row),
        )
        try:
            yield model
        finally:
            await model.aclose()


def streaming(parts: Callable[[], AsyncIterator[bytes]], status: int = 200) -> Answer:
    """Without a length, so that nothing tells how much will come."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for part in parts():
                await response.write(part)
        except ConnectionResetError:
            pass
        return response

    return answer


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * MIB


async def drip() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.01)


async def whole(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.Response(body=b"[1]")


async def test_an_endless_answer_is_cut_off_and_memory_stays_bounded() -> None:
    async with model_behind(streaming(endless)) as model:
        tracemalloc.start()
        with pytest.raises(Poison) as caught:
            await model.predict([ROW])
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert caught.value.code == "result_too_large"
    # The parts, and once more while they are joined.
    assert peak_bytes < 2 * MOST_ANSWER_BYTES + 16 * MIB


async def test_an_answer_is_bounded_by_its_rows() -> None:
    sent = b"[" + b" " * 1_000 + b"1]"

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=sent)

    async with model_behind(answer, answer_bytes_per_row=1_000) as model:
        with pytest.raises(Poison, match=r"1000 bytes \(limits\.answer_bytes_per_row") as caught:
            await model.predict([ROW])
        assert caught.value.code == "result_too_large"
        with pytest.raises(Poison, match="answered 1; it must answer one per row"):
            await model.predict([JsonRows.of([b"[1]"] * 2)])  # which may have twice as much


@pytest.mark.parametrize("value", [b"{}", b"[]", b"0", b'"a":0'])
async def test_values_are_counted_before_they_are_built(value: bytes) -> None:
    """20 million empty objects in 62 MB took 2.1 GB before they were counted."""
    opened, closed = (b"[{", b"}]") if b":" in value else (b"[", b"]")
    body = opened + b",".join([value] * (10 << 20)) + closed

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async with model_behind(answer, answer_bytes_per_row=MOST_ANSWER_BYTES) as model:
        tracemalloc.start()
        with pytest.raises(Poison, match="more than 8388608 values") as caught:
            await model.predict([ROW])
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert caught.value.code == "result_too_large"
    assert peak_bytes < 2 * MOST_ANSWER_BYTES + 16 * MIB


@pytest.mark.parametrize("colon", [b'":', b'" :', b'"\n:'])
async def test_keys_are_counted_as_four_values(colon: bytes) -> None:
    """4 million keys in 55 MB took 964 MB before they were counted."""
    body = b"[{" + b",".join([b'"%d%b0' % (key, colon) for key in range(3 << 20)]) + b"}]"

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async with model_behind(answer, answer_bytes_per_row=MOST_ANSWER_BYTES) as model:
        with pytest.raises(Poison, match="more than 8388608 values") as caught:
            await model.predict([ROW])
    assert caught.value.code == "result_too_large"


@pytest.mark.parametrize("end", [b"</style>", b""])
def test_of_a_page_its_words_are_told_and_none_of_its_style(end: bytes) -> None:
    page = b"<html><h1>Bad Gateway</h1><style>" + b"<style a" * 900 + end
    assert complaint(page) == "Bad Gateway"


async def test_an_endless_complaint_is_cut_off_and_told_in_short() -> None:
    async with model_behind(streaming(endless, 400)) as model:
        with pytest.raises(Rejected) as caught:
            await model.predict([ROW])
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("status", [200, 503])
async def test_an_answer_that_drips_is_given_up_after_the_timeout(status: int) -> None:
    answers: list[Answer] = [whole, streaming(drip, status)]

    async def answer(request: web.Request) -> web.StreamResponse:
        return await answers.pop(0)(request)

    async with model_behind(answer) as model:
        await model.predict([ROW])
        with in_a_hurry(model._http, 0.1), pytest.raises(Unreachable, match="timeout_ms"):
            await model.predict([ROW])


async def test_a_compressed_bomb_is_inflated_to_the_bound_of_answers_and_no_further() -> None:
    bomb = gzip.compress(b" " * (64 * MIB) + b"[1]", 1)

    async def explode(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with model_behind(explode) as model:
        with pytest.raises(Poison, match="more than"):
            await model.predict([ROW])


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"null"),
        (200, b"7"),
        (200, b'{"predictions":{}}'),
        (200, b'{"predictions":[1,2]}'),
        (200, b"[1,2]"),
        (200, b"[[1]"),
        (200, b"\xff\xfe\x00"),
        (200, b"[" * 200_000),
        (200, b"[1]" + b"]" * 9),
        (400, b'{"message":' + b"[" * 900 + b"]" * 900 + b"}"),
        (400, b'{"type":{"a":1},"message":7}'),
    ],
)
async def test_nonsense_refuses_the_rows(status: int, body: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    async with model_behind(answer) as model:
        with pytest.raises(Poison):
            await model.predict([ROW])


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("http://169.254.169.254/")

    async with model_behind(elsewhere) as model:
        with pytest.raises(Exception, match=r"model\.url"):
            await model.predict([ROW])


class Limited:
    """Takes requests of so many bytes; keeps the size of each."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.sizes: list[int] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.sizes.append(len(body))
        if len(body) > self.most_bytes:
            return web.Response(status=413)
        return web.Response(body=orjson.dumps([1] * len(orjson.loads(body))))


def texts(rows: int, row_bytes: int) -> JsonRows:
    return JsonRows.of([b'"%b"' % (b"x" * (row_bytes - 2))] * rows)


async def test_a_limit_is_learned_and_larger_requests_of_several_rows_are_not_sent_again() -> None:
    server = Limited(400_000)
    async with model_behind(server.answer) as model:
        for _ in range(2):
            with pytest.raises(Poison) as caught:
                await model.predict([texts(5, 100_000)])
            assert caught.value.code == "too_large"
        assert len(server.sizes) == 1
        assert len((await model.predict([texts(3, 100_000)])).values) == 3


async def test_several_rows_above_the_usual_limit_are_not_sent_but_a_lone_row_may_be() -> None:
    server = Limited(1 << 30)
    async with model_behind(server.answer) as model:
        with pytest.raises(Poison, match="7 rows") as caught:
            await model.predict([texts(7, 1_000_000)])
        assert (caught.value.code, server.sizes) == ("too_large", [])
        assert len((await model.predict([texts(1, 7_000_000)])).values) == 1


async def test_a_row_that_the_server_hangs_up_on_may_be_too_large_or_may_not() -> None:
    async def hang_up(request: web.Request) -> web.Response:
        await request.content.read(1 << 16)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with model_behind(hang_up) as model:
        for row_bytes, is_oversize in ((7_000_000, True), (1_000_000, False)):
            with pytest.raises(NoAnswer) as caught:
                await model.predict([texts(1, row_bytes)])
            assert caught.value.is_oversize is is_oversize
