"""A real server of chats about pictures: llama.cpp's, with random weights.

Rule: what it says means nothing, but a schema holds it to JSON. What cannot be had on this machine
is skipped, with the reason.
"""

import io
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from PIL import Image

from penstock import config, predict
from penstock.adapters.model_servers.chat import ChatModel
from penstock.core.rows.payload import BytesRows
from penstock.errors import Fatal, Rejected
from tests.support.services import Services, Unavailable, model_server

pytestmark = pytest.mark.model_servers("llamacpp")

SCHEMA = {
    "type": "object",
    "properties": {"person": {"type": "boolean"}, "color": {"enum": ["red", "blue"]}},
    "required": ["person", "color"],
    "additionalProperties": False,
}


def picture(number: int = 0) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64 + number, 48), (10 * number, 10, 10)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture
def known(services: Services, tmp_path: Path) -> dict[str, Any]:
    """The settings that speak to the server."""
    try:
        address = model_server("llamacpp")
    except Unavailable as missing:
        pytest.skip(str(missing))
    (tmp_path / "answer.json").write_bytes(orjson.dumps(SCHEMA))
    return {
        "url": f"http://{address}",
        "name": "random",
        "protocol": "openai-chat",
        "request": "raw",
        "prompt": "{key}: is there a person?",
        "answer_schema": str(tmp_path / "answer.json"),
        "max_tokens": 400,
    }


def connect(settings: dict[str, Any]) -> ChatModel:
    return ChatModel(msgspec.convert(settings, config.Model))


async def test_pictures_are_answered_in_order_by_json_of_the_schema(
    known: dict[str, Any], tmp_path: Path
) -> None:
    names = [f"{number:02}.jpg" for number in range(12)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(picture(number))
    cfg = {"model": known}
    found = [one async for one in predict(f"{tmp_path}/*.jpg", config=cfg)]
    assert [Path(one.object.key).name for one in found if one.object] == names
    for one in found:
        assert one.error is None
        assert isinstance(one.prediction, dict)
        assert one.prediction.keys() == {"person", "color"}
        assert one.prediction["color"] in ("red", "blue")


@pytest.mark.parametrize("data", [b"Is this about a person?", picture()])
async def test_what_it_reads_and_writes_is_counted(known: dict[str, Any], data: bytes) -> None:
    model = connect(known)
    answers = await model.predict([BytesRows.of([data])])
    assert answers.errors == {}
    assert answers.tokens is not None
    assert min(answers.tokens) > 5
    await model.aclose()


@pytest.mark.parametrize(
    ("data", "words"),
    [(picture()[:40], "Failed to load image"), (b"word " * 3_000, "context size")],
)
async def test_a_row_that_it_cannot_read_is_refused(
    known: dict[str, Any], data: bytes, words: str
) -> None:
    model = connect(known)
    with pytest.raises(Rejected, match=words):
        await model.predict([BytesRows.of([data])])
    await model.aclose()


async def test_an_answer_that_is_cut_is_an_error_of_its_row(known: dict[str, Any]) -> None:
    model = connect(known | {"max_tokens": 3})
    answers = await model.predict([BytesRows.of([picture()])])
    assert "model.max_tokens" in answers.errors[0]
    await model.aclose()


async def test_a_schema_that_it_refuses_is_a_setting_to_mend(
    known: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "wrong.json").write_bytes(b'{"type": "string", "pattern": "^(a$"}')
    model = connect(known | {"answer_schema": str(tmp_path / "wrong.json")})
    with pytest.raises(Fatal, match=r"mend model\.answer_schema"):
        await model.predict([BytesRows.of([picture()])])
    await model.aclose()
