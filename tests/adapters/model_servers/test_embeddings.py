"""Texts in, vectors out: whose vector it is, how many texts, and which text is too long."""

from typing import Any

import msgspec
import orjson
import pytest

from penstock import config
from penstock.adapters.model_servers.embeddings import EmbeddingsModel
from penstock.core.rows.payload import BytesRows, JsonRows
from penstock.errors import Poison, Rejected
from penstock.ports import Answers
from tests.support.json_server import JsonServer, json_server

PATH = "/v1/embeddings"
TEXTS = JsonRows.of(['"grün"'.encode(), b'""', b'"abc"'])


def embedded(body: Any) -> Any:
    """A vector with the text's length, the last text's first."""
    vectors = [
        {"object": "embedding", "index": index, "embedding": [float(len(text)), 0.5]}
        for index, text in enumerate(body["input"])
    ]
    return {"object": "list", "data": vectors[::-1], "model": body["model"]}


def connect(server: JsonServer, **settings: Any) -> EmbeddingsModel:
    known = {"url": server.url, "name": "bge"}
    return EmbeddingsModel(msgspec.convert(known | settings, config.Model))


def vectors(*lengths: int) -> list[bytes]:
    return [b'{"embedding":[%d.0,0.5]}' % length for length in lengths]


@pytest.mark.parametrize("behind", ["", "/", "/v1", "/v1/"])
async def test_a_vector_belongs_to_the_text_whose_index_it_carries(behind: str) -> None:
    async with json_server(PATH, embedded, "/health") as server:
        model = connect(server, url=server.url + behind)
        assert await model.ready()
        answers = await model.predict([TEXTS, TEXTS.cut(2, 3)])
        assert (answers.values, answers.errors) == (vectors(4, 0, 3, 3), {})
        assert orjson.loads(server.posted[0][1])["model"] == "bge"
        await model.aclose()


async def test_the_numbers_of_a_vector_keep_their_digits() -> None:
    raw = b'{"data": [{"index": 0, "embedding": [0.1000, 18446744073709551617]}]}'
    async with json_server(PATH, lambda _: raw) as server:
        model = connect(server)
        answers = await model.predict([TEXTS.cut(0, 1)])
        assert answers.values == [b'{"embedding":[0.1000,18446744073709551617]}']
        await model.aclose()


async def test_opaque_rows_are_texts_and_what_is_none_is_refused_alone() -> None:
    async with json_server(PATH, embedded) as server:
        model = connect(server)
        answers = await model.predict([BytesRows.of([b"ab", b"\xff", "ü".encode()])])
        assert answers.values == [*vectors(2), b"null", *vectors(1)]
        assert list(answers.errors) == [1]
        answers = await model.predict([JsonRows.of([b"[1]", b'"x"', b"null"])])
        assert list(answers.errors) == [0, 2]
        assert answers.values[1:2] == vectors(1)
        assert list((await model.predict([JsonRows.of([b"7"])])).errors) == [0]
        assert len(server.posted) == 2, "a request without a text is not sent"
        await model.aclose()


@pytest.mark.parametrize(
    ("status", "body", "limit"),
    [
        (413, b'{"error":"batch size 3 > maximum allowed batch size 2","error_type":"x"}', 2),
        (422, b'{"error":"batch size 3 > maximum allowed batch size 2"}', 2),
        (
            400,
            b'{"error":{"message":"array too long. Expected an array with maximum length 2"}}',
            2,
        ),
        (400, b'{"error":{"message":"too many inputs"}}', 1),
    ],
)
async def test_too_many_texts_are_to_be_split_and_the_limit_is_learned(
    status: int, body: bytes, limit: int
) -> None:
    async with json_server(PATH, embedded) as server:
        model = connect(server)
        server.refusals.append((status, body))
        for _ in range(2):
            with pytest.raises(Poison) as caught:
                await model.predict([TEXTS])
            assert caught.value.code == "too_large"
        assert (len(server.posted), model.most_rows) == (1, limit)
        assert (await model.predict([TEXTS.cut(0, limit)])).values == vectors(4, 0)[:limit]
        await model.aclose()


async def test_a_text_that_is_too_long_does_not_make_later_requests_smaller() -> None:
    long = JsonRows.of([b'"%b"' % (b"x" * 100_000)] * 3)
    async with json_server(PATH, embedded) as server:
        model = connect(server)
        server.refusals.append((413, b'{"error":"`inputs` must have less than 512 tokens"}'))
        with pytest.raises(Rejected):
            await model.predict([long])
        assert len((await model.predict([long])).values) == 3
        await model.aclose()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"data": []}, "model_mismatch"),
        ({"data": [{"index": 0, "embedding": [1]}] * 3}, "model_mismatch"),
        ({"data": [{"index": index, "embedding": [1]} for index in (1, 2, 3)]}, "model_mismatch"),
        ({"data": [{"index": index, "embedding": [1]} for index in range(4)]}, "model_mismatch"),
        ({"data": [{"embedding": [1]}] * 3}, "model_rejected"),
        ({"vectors": []}, "model_rejected"),
        (b"<html>", "model_rejected"),
    ],
)
async def test_anything_but_one_vector_for_each_text_is_refused(answer: Any, code: str) -> None:
    async with json_server(PATH, lambda _: answer) as server:
        model = connect(server)
        with pytest.raises(Poison) as caught:
            await model.predict([TEXTS])
        assert caught.value.code == code
        await model.aclose()


async def test_a_vector_with_nothing_in_it_rejects_its_row_alone() -> None:
    answer = {
        "data": [
            {"index": 0, "embedding": [1, 2]},
            {"index": 1, "embedding": [None, 2]},
            {"index": 2, "embedding": []},
        ]
    }
    async with json_server(PATH, lambda _: answer) as server:
        model = connect(server)
        answers = await model.predict([TEXTS])
        assert (answers.values, list(answers.errors)) == (
            [b'{"embedding":[1,2]}', b"null", b"null"],
            [1, 2],
        )
        await model.aclose()


async def test_health_is_asked_and_where_there_is_none_the_list_of_models() -> None:
    async with json_server(PATH, embedded, "/v1/models") as server:
        model = connect(server)
        assert await model.ready()
        assert await model.predict(()) == Answers([], {})
        assert server.posted == []
        await model.aclose()
