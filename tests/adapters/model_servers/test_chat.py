"""A picture and a prompt in, words out: what is asked, what is an answer, what a refusal means."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web
from PIL import Image

from penstock import config
from penstock.adapters.model_servers.chat import ChatModel
from penstock.adapters.model_servers.protocols import open_model
from penstock.core.rows.origin import About
from penstock.core.rows.payload import BytesRows
from penstock.errors import Doubtful, Fatal, HungUp, Overloaded, Poison, Rejected, Transient
from penstock.messages.reference import Reference
from penstock.ports import Answers, Tokens
from tests.support.chat_server import ChatServer, chat_server, completion, error
from tests.support.scripted import hang_up

SCHEMA = {
    "type": "object",
    "properties": {"person": {"type": "boolean"}, "sure": {"type": "number"}},
    "required": ["person", "sure"],
    "additionalProperties": False,
}


def picture(format: str = "JPEG", size: tuple[int, int] = (8, 6)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 10, 10)).save(out, format)
    return out.getvalue()


def row(data: bytes, about: About | None = None) -> BytesRows:
    one = BytesRows.of([data])
    return BytesRows(one.body, one.ends, about)


def connect(server: ChatServer, **settings: Any) -> ChatModel:
    known = {"url": server.url, "name": "eye", "prompt": "What is this?", "token": server.key}
    return ChatModel(msgspec.convert(known | settings, config.Model))


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "answer.json"
    path.write_bytes(orjson.dumps(SCHEMA))
    return str(path)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP"])
async def test_a_picture_is_sent_as_it_is_under_its_type_and_answered_by_words(format: str) -> None:
    async with chat_server() as server:
        model = connect(server)
        answers = await model.predict([row(picture(format))])
        assert answers.values == [b'{"text":"{\\"size\\":[8,6]}"}']
        assert (answers.errors, answers.tokens) == ({}, Tokens(11, 3))
        (asked,) = server.asked
        assert (asked.prompt, asked.max_tokens, asked.temperature) == ("What is this?", 512, None)
        await model.aclose()


@pytest.mark.parametrize("behind", ["", "/", "/v1", "/v1/"])
async def test_sound_and_text_are_rows_too_and_other_bytes_are_refused_unsent(behind: str) -> None:
    sound = b"RIFF\x24\0\0\0WAVEfmt "
    async with chat_server() as server:
        model = connect(server, url=server.url + behind)
        assert orjson.loads((await model.predict([row(sound)])).values[0])["text"] == (
            f'{{"sound":{len(sound)}}}'
        )
        text = orjson.dumps([0.5] * 16)
        assert b"label" in (await model.predict([row(text)])).values[0]
        answers = await model.predict([row(b"\x00\xff\xfe")])
        assert (answers.values, list(answers.errors)) == ([b"null"], [0])
        assert len(server.asked) == 2
        await model.aclose()


async def test_the_prompt_has_the_fields_of_the_row_s_object() -> None:
    reference = Reference(
        bucket="b", key="k/1.jpg", event_time=1_700_000_000_000, attributes={"line": "A", "n": [1]}
    )
    about = About("cam-2", "in.jpg", reference)
    prompt = (
        "{{{stream}}} {bucket} {key} {event_time} {member} {attributes.line} {attributes.n}"
        "<{attributes.none}>"
    )
    wanted = "{cam-2} b k/1.jpg 2023-11-14T22:13:20.000Z in.jpg A [1]<>"
    async with chat_server() as server:
        model = connect(server, prompt=prompt)
        whole = row(picture(), about)
        await model.predict([whole.cut(0, 1).owned()])
        await model.predict([row(picture())])
        assert [one.prompt for one in server.asked] == [wanted, "{}      <>"]
        await model.aclose()


async def test_the_settings_are_asked_for_and_an_answer_that_fits_the_schema_is_the_prediction(
    schema: str,
) -> None:
    message = '{"person": true,\n "sure": 0.7500000000000000001}'
    async with chat_server(key="sk-1") as server:
        server.answers.append(completion(message))
        model = connect(server, answer_schema=schema, temperature=0.2, max_tokens=40)
        answers = await model.predict([row(picture())])
        assert answers.values == [b'{"person":true,"sure":0.7500000000000000001}']
        (asked,) = server.asked
        assert (asked.temperature, asked.max_tokens) == (0.2, 40)
        assert asked.response_format is not None
        assert asked.response_format.json_schema.schema == SCHEMA
        assert asked.response_format.json_schema.strict
        await model.aclose()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (completion(None, refusal="I can't help with that."), "refuses: I can't help"),
        (completion("", finish_reason="content_filter"), "content filter"),
        (completion('{"person": tr', finish_reason="length"), "model.max_tokens"),
        (completion(None), "said nothing"),
        (completion(None, finish_reason="\x1b[2J"), "(finish_reason  [2J)"),
        (completion(None, finish_reason="x" * 9_000), f"(finish_reason {'x' * 300})"),
        (completion("A person."), "no JSON of model.answer_schema"),
        (completion('{"person": true}'), "has no 'sure'"),
        (completion('{"person": 1, "sure": 1}'), "person is no boolean"),
        (completion('{"person": true, "sure": NaN}'), "unusable"),
    ],
)
async def test_what_is_no_answer_is_the_error_of_its_row_and_its_tokens_count(
    answer: dict[str, Any], words: str, schema: str
) -> None:
    async with chat_server() as server:
        server.answers.append(answer)
        model = connect(server, answer_schema=schema)
        answers = await model.predict([row(picture())])
        assert (answers.values, answers.tokens) == ([b"null"], Tokens(11, 3))
        assert words in answers.errors[0]
        await model.aclose()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"choices": [], "usage": None}, "model_mismatch"),
        ({"object": "chat.completion"}, "model_rejected"),
        (web.Response(text="data: {}\n\n"), "model_rejected"),
    ],
)
async def test_an_answer_that_is_none_blames_the_row(answer: Any, code: str) -> None:
    async with chat_server() as server:
        server.answers.append(answer)
        model = connect(server)
        with pytest.raises(Poison) as caught:
            await model.predict([row(picture())])
        assert caught.value.code == code
        await model.aclose()


TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5003 tokens"


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (error(400, TOO_LONG, code="context_length_exceeded", param="messages"), Rejected),
        # vLLM's words, whose code is a number.
        (error(400, TOO_LONG, code=400, param="max_tokens"), Rejected),
        (error(400, "filtered", code="content_filter"), Rejected),
        # llama.cpp's, with a status that is about the server elsewhere.
        (error(500, "Failed to load image or audio file", code=500), Rejected),
        (error(429, "Request too large for eye in organization o", code="tokens"), Rejected),
        (error(400, "Invalid schema", code=None, param="response_format"), Fatal),
        (error(400, "only the default", code="unsupported_value", param="temperature"), Fatal),
        (error(400, "too large", code="invalid_value", param="max_tokens"), Fatal),
        (error(400, "JSON schema error at #: unrecognized type strange", code=400), Fatal),
        (error(401, "Incorrect API key provided"), Fatal),
        (error(403, "Country not supported"), Fatal),
        (error(429, "Rate limit reached", headers={"Retry-After": "7"}), Overloaded),
        (error(429, "You exceeded your current quota", code="insufficient_quota"), Overloaded),
        (error(503, "The engine is currently overloaded"), Overloaded),
        (error(502, "bad gateway"), Transient),
        (error(500, "The server had an error"), Doubtful),
        # OpenRouter's, of what failed once the answer had begun, and of its moderation.
        (error(200, "Provider returned error", code=502), Doubtful),
        (error(403, "Your input was flagged", code=403), Rejected),
        # vLLM's, and OpenRouter's, for an answer that the server did not end.
        (web.json_response(completion("half an ans", finish_reason="abort")), Doubtful),
        (web.json_response(completion("half an ans", finish_reason="error")), Doubtful),
        (hang_up, HungUp),
    ],
)
async def test_a_refusal_means_what_it_is_about(answer: Any, meaning: type[Exception]) -> None:
    async with chat_server() as server:
        server.answers += [answer]
        model = connect(server)
        with pytest.raises(meaning) as caught:
            await model.predict([row(picture())])
        assert type(caught.value) is meaning
        if isinstance(caught.value, Overloaded) and "Rate" in str(caught.value):
            assert caught.value.retry_after_s == 7.0
        await model.aclose()


async def test_a_broken_picture_blames_its_row_and_a_model_that_is_not_there_the_settings() -> None:
    async with chat_server() as server:
        model = connect(server)
        with pytest.raises(Rejected, match="Failed to load image"):
            await model.predict([row(picture()[:20])])
        await model.aclose()
        model = connect(server, name="blind")
        with pytest.raises(Fatal, match=r"model\.name"):
            await model.predict([row(picture())])
        await model.aclose()


async def test_a_server_that_knows_only_the_new_name_of_the_limit_is_asked_by_it_from_then_on() -> (
    None
):
    async with chat_server(wants_new=True) as server:
        model = connect(server, max_tokens=9)
        for _ in range(2):
            assert (await model.predict([row(picture())])).errors == {}
        assert [one.max_completion_tokens for one in server.asked] == [9, 9]
        await model.aclose()


async def test_calls_at_the_same_time_learn_the_new_name_together() -> None:
    async with chat_server(wants_new=True) as server:
        model = connect(server)
        answers = await asyncio.gather(*(model.predict([row(picture())]) for _ in range(4)))
        assert all(answer.errors == {} for answer in answers)
        await model.aclose()


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**400, "completion_tokens": 1},
        {"prompt_tokens": None, "completion_tokens": 1},
        {"prompt_tokens": -3, "completion_tokens": 1},
        "eleven",
    ],
    ids=lambda usage: str(usage)[:30],
)
async def test_odd_figures_of_tokens_cost_no_answer(usage: Any) -> None:
    # Not every number fits into what writes JSON elsewhere here.
    body = json.dumps(completion("yes") | {"usage": usage})
    async with chat_server() as server:
        server.answers.append(web.Response(text=body, content_type="application/json"))
        model = connect(server)
        answers = await model.predict([row(picture())])
        assert (answers.values, answers.tokens) == ([b'{"text":"yes"}'], None)
        await model.aclose()


async def test_health_is_asked_and_where_there_is_none_the_list_of_models() -> None:
    async with chat_server(key="sk-1") as server:
        model = connect(server)
        assert await model.ready()
        assert await model.predict(()) == Answers([], {})
        await model.aclose()
        model = connect(server, token="sk-2")
        assert not await model.ready()
        with pytest.raises(Fatal, match=r"model\.token") as caught:
            await model.predict(())
        assert "sk-2" not in str(caught.value)
        await model.aclose()
        assert server.asked == []


async def test_a_server_that_tells_its_health_to_anybody_finds_a_wrong_token_at_the_start() -> None:
    async with chat_server(key="sk-1", has_health=True) as server:
        model = connect(server)
        assert await model.predict(()) == Answers([], {})
        await model.aclose()
        model = connect(server, token="sk-2")
        with pytest.raises(Fatal, match=r"model\.token"):
            await model.predict(())
        await model.aclose()


async def test_two_rows_are_no_request() -> None:
    async with chat_server() as server:
        model = connect(server)
        assert model.most_rows == 1
        with pytest.raises(Poison) as caught:
            await model.predict([row(picture()), row(picture())])
        assert (caught.value.code, server.asked) == ("too_large", [])
        await model.aclose()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "needs model.prompt"),
        ({"prompt": "{camera}?"}, "{attributes.NAME}"),
        ({"prompt": "{key!r}"}, "takes no format"),
        ({"prompt": "{"}, "model.prompt"),
        ({"prompt": "?", "request": "bytes"}, "choose one of raw"),
        ({"prompt": "?", "answer_schema": "/none.json"}, "model.answer_schema"),
        ({"prompt": "?", "protocol": "torchserve"}, "is for model.protocol = 'openai-chat'"),
        ({"prompt": "?", "outputs": ["x"]}, "is for model.protocol = 'oip'"),
    ],
)
def test_settings_that_do_not_fit_are_told(settings: dict[str, Any], words: str) -> None:
    known = {"protocol": "openai-chat", "request": "raw"} | settings
    with pytest.raises(Fatal) as caught:
        open_model(config.Config(model=msgspec.convert(known, config.Model)))
    assert words in str(caught.value)
