"""Pictures and a prompt by the whole pipeline: each is answered once, in order, whatever fails."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from PIL import Image

from penstock import PenstockError, predict
from tests.support.chat_server import chat_server, completion, error
from tests.support.scripted import hang_up

COUNT = 24


def pictures(folder: Path) -> list[str]:
    names = [f"{number:02}.png" for number in range(COUNT)]
    for number, name in enumerate(names):
        out = io.BytesIO()
        Image.new("RGB", (number + 1, 3)).save(out, "PNG")
        (folder / name).write_bytes(out.getvalue())
    return names


def settings(url: str, **model: Any) -> dict[str, Any]:
    known = {"url": url, "name": "eye", "prompt": "{key}?", "max_in_flight": 3}
    return {
        "model": known | {"protocol": "openai-chat", "request": "raw"} | model,
        "objects": {"concurrency": 8},
    }


async def test_each_picture_has_a_request_of_its_own_and_its_answer_in_order(
    tmp_path: Path,
) -> None:
    names = pictures(tmp_path)
    async with chat_server(together=3) as server:
        server.answers += [
            completion(None, refusal="no"),
            error(429, "Rate limit reached", headers={"Retry-After": "0"}),
            error(503, "overloaded", headers={"Retry-After": "0"}),
            hang_up,
        ]
        found = [one async for one in predict(f"{tmp_path}/*.png", config=settings(server.url))]
        assert [Path(one.object.key).name for one in found if one.object] == names
        refused = [one for one in found if one.error is not None]
        (error_of_one,) = [one.error for one in refused]
        assert error_of_one is not None
        assert (error_of_one.code, error_of_one.message) == (
            "model_rejected", "the model refuses: no"
        )  # fmt: skip
        for number, one in enumerate(found):
            if one not in refused:
                assert isinstance(one.prediction, dict)
                assert orjson.loads(one.prediction["text"]) == {"size": [number + 1, 3]}
        prompts = [Path(asked.prompt.removesuffix("?")).name for asked in server.asked]
        assert set(prompts) == set(names)
        # Three requests were made again; after the hang-up the server is asked how it is.
        assert COUNT + 3 <= len(prompts) <= COUNT + 6
        assert all(prompts.count(name) == 1 for name in names[COUNT // 2 :])
        assert server.most_at_a_time == 3


async def test_pictures_of_an_archive_are_named_by_their_member(tmp_path: Path) -> None:
    pictures(tmp_path)
    with zipfile.ZipFile(tmp_path / "shots.zip", "w") as archive:
        for name in ("03.png", "01.png"):
            archive.write(tmp_path / name, name)
    async with chat_server() as server:
        cfg = settings(server.url, prompt="{member}")
        found = [one async for one in predict(str(tmp_path / "shots.zip"), config=cfg)]
        assert [one.member for one in found] == ["03.png", "01.png"]
        assert sorted(asked.prompt for asked in server.asked) == ["01.png", "03.png"]


async def test_a_schema_that_the_server_refuses_ends_the_call_with_what_to_mend(
    tmp_path: Path,
) -> None:
    pictures(tmp_path)
    (tmp_path / "answer.json").write_bytes(b'{"type":"object"}')
    async with chat_server() as server:
        message = "Invalid schema for response_format 'answer'"
        server.answers += [error(400, message, param="response_format") for _ in range(3)]
        cfg = settings(server.url, answer_schema=str(tmp_path / "answer.json"))
        with pytest.raises(
            PenstockError, match=re.escape(message) + ".*; mend model.answer_schema"
        ):
            async for _ in predict(f"{tmp_path}/*.png", config=cfg):
                pass
