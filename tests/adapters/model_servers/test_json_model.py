"""Any JSON server: where it is called, in which envelope, and where its answers are found."""

from typing import Any, get_args

import msgspec
import orjson
import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.model_servers.http_calls import AnswerBounds
from penstock.adapters.model_servers.json_model import PRESETS, JsonModel
from penstock.config.model_sections import Preset
from penstock.core.rows.payload import BytesRows, JsonRows
from penstock.errors import (
    EXIT_USAGE,
    Fatal,
    Poison,
    Rejected,
    Unreachable,
)
from tests.support.http_server import http_server
from tests.support.json_server import JsonServer, json_server

ROWS = JsonRows.of([b"[1,2]", b'{"a":"x,\\n"}', b'"text"'])


def connect(server: JsonServer, **settings: Any) -> JsonModel:
    known = {"url": server.url, "name": "digits"}
    return JsonModel(msgspec.convert(known | settings, config.Model))


def sized(rows: list[Any]) -> list[dict[str, int]]:
    return [{"size": len(row)} for row in rows]


# Where each preset posts, what comes there, and how that server answers it.
CASES: dict[str, tuple[str, str | None, Any]] = {
    "kserve-v1": (
        "/v1/models/digits:predict",
        "/v1/models/digits",
        lambda body: {"predictions": sized(body["instances"])},
    ),
    "tf-serving": (
        "/v1/models/digits:predict",
        "/v1/models/digits",
        lambda body: {"predictions": sized(body["instances"])},
    ),
    "vertex": (
        "/v1/projects/p/endpoints/e:predict",
        None,
        lambda body: {"predictions": sized(body["instances"]), "deployedModelId": "7"},
    ),
    "mlflow": ("/invocations", "/ping", lambda body: {"predictions": sized(body["inputs"])}),
    "sagemaker": ("/invocations", "/ping", lambda body: b"\n".join(map(orjson.dumps, sized(body)))),
    "bentoml": ("/digits", "/readyz", lambda body: sized(body["rows"])),
    "litserve": ("/predict", "/health", sized),
    "ray-serve": ("/digits", "/-/healthz", sized),
}


def test_every_preset_is_tested_and_can_be_chosen() -> None:
    assert CASES.keys() == PRESETS.keys() == set(get_args(Preset))


@pytest.mark.parametrize("preset", CASES)
async def test_a_preset_knows_address_envelope_and_answers(preset: str) -> None:
    path, health, answer = CASES[preset]
    async with json_server(path, answer, health) as server:
        at = {"url": server.url + path} if preset == "vertex" else {}
        model = connect(server, preset=preset, **at)
        assert await model.ready()
        answers = await model.predict([ROWS, ROWS.cut(0, 1)])
        assert answers.values == [b'{"size":%d}' % size for size in (2, 1, 4, 2)]
        assert answers.errors == {}
        await model.aclose()


async def test_lines_are_asked_for_as_a_container_of_sagemaker_chooses_their_form_else() -> None:
    path, health, answer = CASES["sagemaker"]
    async with json_server(path, answer, health) as server:
        model = connect(server, preset="sagemaker")
        await model.predict([ROWS])
        lines = b'[1,2]\n{"a":"x,\\n"}\n"text"'
        assert server.posted == [("application/jsonlines", lines)]
        assert server.accepts == ["application/jsonlines"]
        await model.aclose()


# As the documentation of each shows them.
@pytest.mark.parametrize(
    ("preset", "status", "complaint"),
    [
        ("tf-serving", 400, {"error": "wrong shape"}),
        ("mlflow", 400, {"error_code": "BAD_REQUEST", "message": "wrong shape"}),
        ("vertex", 400, {"error": {"code": 400, "message": "wrong shape", "status": "INVALID"}}),
        ("sagemaker", 400, {"ErrorCode": "CLIENT_ERROR", "message": "wrong shape"}),
        ("bentoml", 400, {"error": "wrong shape", "detail": [{"type": "missing"}]}),
        ("litserve", 500, {"detail": "wrong shape"}),
        ("kserve-v1", 400, {"error": "wrong shape"}),
    ],
)
async def test_a_complaint_is_told_in_the_servers_own_words(
    preset: str, status: int, complaint: Any
) -> None:
    path, health, answer = CASES[preset]
    async with json_server(path, answer, health) as server:
        at = {"url": server.url + path} if preset == "vertex" else {}
        model = connect(server, preset=preset, **at)
        server.refusals.append((status, orjson.dumps(complaint)))
        with pytest.raises(Rejected, match=f"answered {status}: wrong shape$"):
            await model.predict([ROWS])
        await model.aclose()


@pytest.mark.parametrize("preset", [name for name, case in CASES.items() if case[1]])
async def test_a_server_without_the_health_of_its_preset_is_not_ready(preset: str) -> None:
    async with json_server("/elsewhere", sized) as server:
        model = connect(server, preset=preset)
        assert not await model.ready()
        with pytest.raises(Fatal, match=r"model\.url") as caught:
            await model.predict(())
        assert caught.value.exit_code == EXIT_USAGE
        await model.aclose()


async def test_a_server_whose_health_is_more_than_can_be_read_is_not_ready() -> None:
    async with json_server("/predict", sized, "/health") as server:
        settings = config.Model(url=server.url, name="digits", preset="litserve")
        model = JsonModel(settings, AnswerBounds(1))
        server.refusals.append((200, b"all is well"))
        assert not await model.ready()
        await model.aclose()


async def test_a_version_is_part_of_the_address() -> None:
    path = "/v1/models/digits/versions/3"
    async with json_server(f"{path}:predict", CASES["tf-serving"][2], path) as server:
        model = connect(server, preset="tf-serving", version="3")
        assert await model.ready()
        assert len((await model.predict([ROWS])).values) == 3
        await model.aclose()


async def test_everything_can_be_said_without_a_preset() -> None:
    def answer(body: Any) -> Any:
        assert body["k"] == 1
        return {"result": {"a/b": [{"ok": row, "why": None} for row in body["data"]]}}

    async with json_server("/models/digits/score", answer, "/up") as server:
        model = connect(
            server,
            path="/models/{name}/score",
            health="/up",
            template='{"data":[{rows}],"k":1}',
            answers="/result/a~1b",
        )
        assert await model.ready()
        answers = await model.predict([ROWS])
        assert orjson.loads(answers.values[1]) == {"ok": {"a": "x,\n"}, "why": None}
        await model.aclose()


async def test_pictures_are_texts_in_a_body_of_ones_own() -> None:
    async with json_server("/", lambda body: [len(text) for text in body["images"]]) as server:
        model = connect(server, path="/", request="b64", template='{"images":[{rows}]}')
        answers = await model.predict([BytesRows.of([b"\xff\xd8"]), BytesRows.of([b"abc", b""])])
        assert answers.values == [b"4", b"4", b"0"]
        await model.aclose()


async def test_something_at_the_pointer_of_a_rows_error_rejects_that_row() -> None:
    answer = [{"y": 1, "fault": {"text": ""}}, {"y": 2, "fault": {"text": "cold"}}, {"y": 3}]
    async with json_server("/", lambda _: answer) as server:
        model = connect(server, path="/", row_error="/fault/text")
        answers = await model.predict([ROWS])
        assert answers.errors == {1: "cold"}
        assert answers.values[1] == b"null"
        await model.aclose()


@pytest.mark.parametrize("answers", [None, "/out"])
async def test_a_number_that_is_none_rejects_its_row_alone(answers: str | None) -> None:
    raw = b"[1.5,NaN,2.5]" if answers is None else b'{"out":[1.5,NaN,2.5]}'
    async with json_server("/", lambda _: raw) as server:
        model = connect(server, path="/", answers=answers)
        found = await model.predict([ROWS])
        assert (found.values, list(found.errors)) == ([b"1.5", b"null", b"2.5"], [1])
        await model.aclose()


@pytest.mark.parametrize(
    ("raw", "answers", "code"),
    [
        (b"[1,2]", None, "model_mismatch"),
        (b"[1,2,3,4]", None, "model_mismatch"),
        (b'{"out":[1,2]}', "/out", "model_mismatch"),
        (b'{"out":{"a":1}}', "/out", "model_mismatch"),
        (b'{"other":[1,2,3]}', "/out", "model_rejected"),
        (b"<html>", "/out", "model_rejected"),
        (b"1\n2\n", "lines", "model_mismatch"),
        (b"1\n2\n{", "lines", "model_rejected"),
    ],
)
async def test_an_answer_that_does_not_fit_refuses_the_rows(
    raw: bytes, answers: str | None, code: str
) -> None:
    async with json_server("/", lambda _: raw) as server:
        model = connect(server, path="/", answers=answers)
        with pytest.raises(Poison) as caught:
            await model.predict([ROWS])
        assert caught.value.code == code
        await model.aclose()


@pytest.mark.parametrize("no_method", [405, 501])
async def test_no_empty_batch_is_sent_and_a_server_without_health_is_looked_at(
    no_method: int,
) -> None:
    """Frameworks answer 405 to a method that they do not know, Python's `http.server` 501."""
    async with json_server("/", lambda rows: rows) as server:
        server.no_method = no_method
        model = connect(server, path="/")
        assert await model.ready()
        await model.predict(())
        assert server.posted == []
        await model.aclose()


@pytest.mark.parametrize("no_method", [405, 501])
async def test_a_server_that_knows_post_alone_is_there(no_method: int) -> None:
    async with json_server("/v1/models/digits:predict", sized) as server:
        server.no_method = no_method
        model = connect(server, preset="tf-serving", health="/v1/models/digits:predict")
        await model.predict(())
        await model.aclose()


async def test_a_page_is_told_by_its_text_and_with_the_address_that_sent_it() -> None:
    async def page(request: web.Request) -> web.Response:
        await request.read()
        body = "<!DOCTYPE html>\n<html><style>p {}</style>\n<p>Gone\n<b>away</b></p></html>"
        return web.Response(status=404, text=body, content_type="text/html")

    async with http_server(page) as url:
        model = JsonModel(config.Model(url=url, preset="tf-serving"))
        with pytest.raises(Fatal, match="/v1/models/rows answered 404: Gone away; "):
            await model.predict(())
        await model.aclose()


async def test_a_model_that_has_no_address_on_a_healthy_server_is_a_usage_error() -> None:
    async with json_server("/digits", lambda rows: rows, "/health") as server:
        model = connect(server, preset="litserve", path="/letters")
        with pytest.raises(Fatal, match=r"model\.name"):
            await model.predict(())
        await model.aclose()


async def test_a_server_that_is_away_is_unreachable_and_not_ready() -> None:
    async with json_server("/", lambda rows: rows) as server:
        pass
    model = connect(server, path="/")
    assert not await model.ready()
    with pytest.raises(Unreachable):
        await model.predict([ROWS])
    await model.aclose()


@pytest.mark.parametrize(
    "settings", [{"template": "{}"}, {"template": "{rows}", "request": "bytes"}]
)
def test_a_template_that_cannot_hold_rows_is_a_usage_error(settings: dict[str, Any]) -> None:
    with pytest.raises(Fatal, match=r"\{rows\}"):
        JsonModel(msgspec.convert(settings, config.Model))


async def test_one_row_a_request_is_that_rows_answer() -> None:
    async with json_server("/", lambda _: {"label": 3}) as server:
        model = connect(server, path="/", request="raw")
        answers = await model.predict([BytesRows.of([b"[1]"])])
        assert answers.values == [b'{"label":3}']
        await model.aclose()
