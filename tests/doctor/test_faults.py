"""Faults of stores, models and brokers, each planted alone by a stand-in, and none in health."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from penstock import config
from penstock.doctor import stores
from penstock.doctor.examine import examine
from penstock.doctor.finding import Finding
from penstock.process.children import free_port
from tests.support.json_server import json_server

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
UPLOAD = (
    "<Upload><Key>{0}.jsonl</Key><UploadId>{0}</UploadId><Initiated>{1:%Y-%m-%dT%H:%M:%S.000Z}"
    "</Initiated></Upload>"
)


def _no(code: str, status: int) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


@asynccontextmanager
async def store(
    *, clock: timedelta = timedelta(), uploads: tuple[timedelta, ...] = ()
) -> AsyncIterator[config.Objects]:
    """An S3 server with the buckets `there` and `secret`, and nothing in them."""

    async def answer(request: web.Request) -> web.Response:
        bucket = request.path.split("/")[1]
        if "uploads" in request.query:
            listed = "".join(UPLOAD.format(n, NOW - age) for n, age in enumerate(uploads))
            text = f"<ListMultipartUploadsResult>{listed}</ListMultipartUploadsResult>"
            return web.Response(text=text, content_type="application/xml")
        if bucket == "secret":
            return _no("AccessDenied", 403)
        return _no("NoSuchKey" if bucket == "there" else "NoSuchBucket", 404)

    async def with_date(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = format_datetime(NOW + clock, usegmt=True)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    app.on_response_prepare.append(with_date)
    async with TestServer(app) as server:
        yield config.Objects(
            endpoint_url=str(server.make_url("")).rstrip("/"),
            key="k",
            secret="s",
            region="us-east-1",
        )


@pytest.mark.parametrize(("seconds", "says"), [(0, []), (60, ["60 s apart"]), (-900, ["900 s"])])
async def test_a_store_with_another_time_is_found(seconds: int, says: list[str]) -> None:
    async with store(clock=timedelta(seconds=seconds)) as objects:
        assert objects.endpoint_url is not None
        found = await stores.look_at_clock(objects.endpoint_url, NOW)
    assert len(found) == len(says)
    assert all(text in one.said for text, one in zip(says, found, strict=True))


async def test_a_server_that_tells_no_time_is_none_of_it() -> None:
    assert await stores.look_at_clock(f"http://127.0.0.1:{free_port()}", NOW) == []


async def test_buckets_that_may_be_read_must_be_there() -> None:
    async with store() as objects:
        allow = ["there/", "gone/a/", "secret/", "many-*/", "other://gone/"]
        cfg = config.Config(objects=replace(objects, allow=allow))
        found = {one.what: one for one in await stores.look_at_allowed(cfg)}
    assert {what: one.level for what, one in found.items()} == {
        "bucket gone": "wrong",
        "bucket secret": "mind",
    }
    assert "objects.allow names it" in found["bucket gone"].said


@pytest.mark.parametrize(("hours", "count"), [((), 0), ((1, 23), 0), ((1, 25, 100), 2)])
async def test_uploads_that_nobody_completed_are_found(hours: tuple[int, ...], count: int) -> None:
    async with store(uploads=tuple(timedelta(hours=each) for each in hours)) as objects:
        cfg = config.Config(objects=objects)
        found = await stores.look_at_leftovers(cfg, "s3://there/{bucket}/{key}.jsonl", NOW)
    assert [one.level for one in found] == ["mind"] * bool(count)
    if found:
        assert found[0].said.startswith(f"{count} uploads were begun more than a day ago")
        assert "put-bucket-lifecycle-configuration --bucket there" in found[0].said


async def test_a_folder_has_no_leftovers(tmp_path: Path) -> None:
    cfg = config.Config(objects=config.Objects(endpoint_url=f"file://{tmp_path}"))
    assert await stores.look_at_leftovers(cfg, "s3://b/{bucket}/{key}.jsonl", NOW) == []


async def test_all_services_away_are_told_one_by_one(tmp_path: Path) -> None:
    """Each with its address; a look that fails keeps none of the others from being made."""
    port = free_port()
    cfg = config.Config(
        kafka=config.Kafka(bootstrap_servers=f"127.0.0.1:{port}", timeout_ms=500),
        objects=config.Objects(endpoint_url=f"file://{tmp_path}/none"),
        stores={"lake": config.Store(url=f"file://{tmp_path}/away")},
        model=config.Model(url=f"http://127.0.0.1:{port}"),
    )
    found: list[Finding] = [one async for one in examine(cfg, (), fix=False)]
    wrong = {one.what: one.said for one in found if not one.is_well}
    assert {"topics", "stores.lake", "model"} <= wrong.keys()
    assert str(port) in wrong["topics"]
    assert str(port) in wrong["model"]
    assert "correct stores.lake.url" in wrong["stores.lake"]


async def test_a_model_of_several_that_is_away_is_named(tmp_path: Path) -> None:
    async with json_server("/", lambda rows: [0 for _ in rows]) as server:
        cfg = config.Config(
            kafka=config.Kafka(bootstrap_servers=f"127.0.0.1:{free_port()}", timeout_ms=500),
            objects=config.Objects(endpoint_url=f"file://{tmp_path}"),
            model=config.Model(url=server.url, protocol="http"),
            models=[
                config.NamedModel(name="ts", url=f"http://127.0.0.1:{free_port()}", protocol="http")
            ],
        )
        found = [one async for one in examine(cfg, (), fix=False)]
    levels = {one.what: one.level for one in found}
    assert (levels["model"], levels["model ts"], levels["store"]) == ("ok", "wrong", "ok")
