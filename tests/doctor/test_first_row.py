"""`penstock doctor OBJECT` sends the object's first row to its model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.config.model_sections import NamedModel
from penstock.errors import Fatal
from penstock.tools.doctor.examine import examine
from penstock.tools.doctor.models_and_routes import try_first_row
from tests.support.json_server import json_server
from tests.support.worker import own_port

BODY = b"1,2\n3,4\n"


@asynccontextmanager
async def hanging_up() -> AsyncIterator[str]:
    """Python's `http.server` does this when a handler raises."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def configured(folder: Path, url: str, name: str = "a.csv", body: bytes = BODY) -> config.Config:
    (folder / "b").mkdir()
    (folder / "b" / name).write_bytes(body)
    return config.Config(
        objects=config.Objects(endpoint_url=f"file://{folder}"),
        model=config.Model(url=url, protocol="http", request="json"),
    )


async def test_it_shows_what_was_sent_and_answered(tmp_path: Path) -> None:
    async with json_server("/", lambda rows: [sum(row) for row in rows]) as server:
        words = await try_first_row(configured(tmp_path, server.url), "s3://b/a.csv")
    assert words == "rows was sent 1 row as application/json, 7 bytes: [[1,2]]; it answered 3"


async def test_a_server_that_hangs_up_on_the_row_is_told_with_the_row(tmp_path: Path) -> None:
    async with hanging_up() as url:
        with pytest.raises(Fatal, match=r"\[\[1,2\]\]; it closed the connection.*see its log"):
            await try_first_row(configured(tmp_path, url), "s3://b/a.csv")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda rows: {"result": 3}, r"answered something else.*\{\"result\":3\}.*one element"),
        (lambda rows: b"<html>", r"it refused: .*is not JSON"),
        (lambda rows: [{"error": "no such sensor"}], r"refuses the row: no such sensor"),
    ],
)
async def test_an_answer_that_is_none_is_told(
    tmp_path: Path, answer: Callable[[Any], Any], says: str
) -> None:
    async with json_server("/", answer) as server:
        with pytest.raises(Fatal, match=says):
            await try_first_row(configured(tmp_path, server.url), "s3://b/a.csv")


async def test_the_routes_choose_the_model(tmp_path: Path) -> None:
    async with json_server("/", lambda rows: [7]) as other:
        cfg = configured(tmp_path, "http://127.0.0.1:9")
        special = NamedModel(name="special", url=other.url, protocol="http", request="json")
        cfg = config.Config(
            objects=cfg.objects,
            model=cfg.model,
            models=[special],
            routes=[config.Route(model="special", key="a.*")],
        )
        words = await try_first_row(cfg, "s3://b/a.csv")
    assert words.startswith("special was sent")


async def test_a_local_file_is_tried_without_a_store(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(BODY)
    async with json_server("/", lambda rows: [sum(row) for row in rows]) as server:
        cfg = config.Config(
            kafka=config.Kafka(bootstrap_servers=f"127.0.0.1:{own_port()}", timeout_ms=500),
            model=config.Model(url=server.url, protocol="http", request="json"),
        )
        found = {one.what: one.said async for one in examine(cfg, (str(file),), fix=False)}
    assert found[str(file)] == "readable, 8 bytes"
    assert found[f"first row of {file}"].endswith("[[1,2]]; it answered 3")


@pytest.mark.parametrize(("name", "body"), [("a.csv", b""), ("a.parquet", b"no table")])
async def test_an_object_without_a_row_is_told(tmp_path: Path, name: str, body: bytes) -> None:
    cfg = configured(tmp_path, "http://127.0.0.1:9", name, body)
    with pytest.raises(Fatal, match="no row can be read"):
        await try_first_row(cfg, f"s3://b/{name}")
