"""Faults of stores, models and brokers, each planted alone by a stand-in, and none in health."""

import re
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
from penstock.config.model_sections import NamedModel
from penstock.errors import Fatal
from penstock.ops.http_server import serving
from penstock.tools.doctor import stores
from penstock.tools.doctor.examine import examine, look_at_worker
from penstock.tools.doctor.finding import Finding
from penstock.tools.doctor.stores import look_at_leftovers, look_at_results
from tests.support.json_server import json_server
from tests.support.worker import own_port

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
KEY = re.compile("<Key>(.*)</Key>")
UPLOAD = (
    "<Upload><Key>{0}.jsonl</Key><UploadId>{0}</UploadId><Initiated>{1:%Y-%m-%dT%H:%M:%S.000Z}"
    "</Initiated></Upload>"
)


def _no(code: str, status: int) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


@asynccontextmanager
async def store(
    *,
    clock: timedelta = timedelta(),
    uploads: tuple[timedelta, ...] = (),
    removes: bool = True,
    written: list[str] | None = None,
) -> AsyncIterator[config.Objects]:
    """An S3 server with the buckets `there` and `secret`, and nothing in them but what is
    `written`.
    """

    written = [] if written is None else written

    async def answer(request: web.Request) -> web.Response:
        bucket = request.path.split("/")[1]
        if "uploads" in request.query:
            listed = "".join(UPLOAD.format(n, NOW - age) for n, age in enumerate(uploads))
            text = f"<ListMultipartUploadsResult>{listed}</ListMultipartUploadsResult>"
            return web.Response(text=text, content_type="application/xml")
        if bucket == "secret":
            return _no("AccessDenied", 403)
        if request.method == "PUT" and bucket == "there":
            written.append(request.path.removeprefix("/there/"))
            return web.Response(headers={"ETag": '"1"'})
        if request.method == "POST" and "delete" in request.query:
            [key] = KEY.findall(await request.text())
            if removes:
                written.remove(key)
            what = "Deleted" if removes else "Error"
            why = "" if removes else "<Code>AccessDenied</Code><Message>no right</Message>"
            text = f"<DeleteResult><{what}><Key>{key}</Key>{why}</{what}></DeleteResult>"
            return web.Response(text=text, content_type="application/xml")
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
        finding = await stores.look_at_clock(objects.endpoint_url, NOW)
    assert len(finding) == len(says)
    assert all(text in one.said for text, one in zip(says, finding, strict=True))


async def test_a_server_that_tells_no_time_is_none_of_it() -> None:
    assert await stores.look_at_clock(f"http://127.0.0.1:{own_port()}", NOW) == []


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
        findings = await look_at_leftovers(cfg, "s3://there/{bucket}/{key}.jsonl", NOW)
    assert [finding.level for finding in findings] == ["mind"] * bool(count)
    if findings:
        assert findings[0].said.startswith(f"{count} uploads were begun more than a day ago")
        assert "put-bucket-lifecycle-configuration --bucket there" in findings[0].said


async def test_rights_to_write_results_are_tried_and_nothing_stays() -> None:
    written: list[str] = []
    async with store(written=written) as objects:
        cfg = config.Config(objects=objects)
        [finding] = await look_at_results(cfg, "s3://there/answers/{bucket}/{key}.jsonl")
    assert (finding.level, written) == ("ok", [])


async def test_a_probe_that_cannot_be_removed_is_told_with_its_name() -> None:
    written: list[str] = []
    async with store(removes=False, written=written) as objects:
        cfg = config.Config(objects=objects)
        [finding] = await look_at_results(cfg, "s3://there/answers/{bucket}/{key}.jsonl")
    assert finding.level == "mind"
    [key] = written
    assert key.startswith("answers/penstock-doctor-")
    assert f"Remove {key} of there by hand" in finding.said


@pytest.mark.parametrize("bucket", ["secret", "gone"])
async def test_a_bucket_that_takes_no_results_is_found(bucket: str) -> None:
    template = f"s3://{bucket}/{{bucket}}/{{key}}.jsonl"
    async with store() as objects:
        cfg = config.Config(objects=objects, output=config.Output(objects=template))
        found = [one async for one in examine(cfg, (), fix=False) if one.what == "results"]
    assert [one.level for one in found] == ["wrong"]
    assert "the result cannot be written" in found[0].said


async def test_a_folder_for_results_is_tried_as_far_as_it_is_there(tmp_path: Path) -> None:
    template = f"file://{tmp_path}/answers/{{bucket}}/{{key}}.jsonl"
    [finding] = await look_at_results(config.Config(), template)
    assert finding.level == "ok"
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
    (tmp_path / "answers").touch()
    with pytest.raises(Fatal, match="let this user write there"):
        await look_at_results(config.Config(), template)


async def test_what_the_worker_here_says_is_told_as_on_its_page() -> None:
    port = own_port()
    late = {"level": "warn", "what": "cam-7 is 4.2 s behind", "do": "Look at its objects"}
    document: dict[str, object] = {"problems": [{**late, "level": "bad"}, late]}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(document)

    cfg = config.Config(http=config.Http(port=port, token="open"))
    assert [one.level for one in await look_at_worker(cfg)] == ["ok"]
    async with serving(cfg.http, {"/api/status": answer}):
        findings = await look_at_worker(cfg)
        assert [finding.level for finding in findings] == ["wrong", "mind"]
        assert findings[0].said == "cam-7 is 4.2 s behind. Look at its objects"
        with pytest.raises(Fatal, match="another token"):
            await look_at_worker(replace(cfg, http=replace(cfg.http, token="other")))
        document["problems"] = []
        assert [one.level for one in await look_at_worker(cfg)] == ["ok"]
        # A scenes worker may listen there, or another program.
        document.clear()
        document["sites"] = [{"site": "s", "lost": None}, {"site": "t", "lost": "cam-3 is ahead"}]
        document["lost"] = "no_site"
        [placeless, lost] = await look_at_worker(cfg)
        assert placeless.said == "no_site"
        assert lost == Finding("scenes", "mind", "site t: cam-3 is ahead")
        document.clear()
        [found_none] = await look_at_worker(cfg)
        assert found_none.said.startswith("none runs at")


async def test_a_folder_has_no_leftovers(tmp_path: Path) -> None:
    cfg = config.Config(objects=config.Objects(endpoint_url=f"file://{tmp_path}"))
    assert await look_at_leftovers(cfg, "s3://b/{bucket}/{key}.jsonl", NOW) == []


async def test_all_services_away_are_told_one_by_one(tmp_path: Path) -> None:
    """Each with its address; a look that fails keeps none of the others from being made."""
    port = own_port()
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


async def test_an_object_is_told_also_where_its_store_is_away(tmp_path: Path) -> None:
    """One of another place is looked at all the same."""
    port, here = own_port(), tmp_path / "a.csv"
    here.write_text("1,2\n")
    cfg = config.Config(
        kafka=config.Kafka(bootstrap_servers=f"127.0.0.1:{port}", timeout_ms=500),
        objects=config.Objects(endpoint_url=f"http://127.0.0.1:{port}", key="k", secret="s"),
        stores={"lake": config.Store(url=f"file://{tmp_path}")},
        model=config.Model(url=f"http://127.0.0.1:{port}"),
    )
    urls = ("s3://b/a.csv", "lake://a.csv", "s3://", str(here))
    found = [one async for one in examine(cfg, urls, fix=False)]
    said = {one.what: (one.level, one.said) for one in found}
    level, why = said["s3://b/a.csv"]
    assert (level, said["store"][0]) == ("wrong", "wrong")
    assert "could not be looked at" in why
    assert f"127.0.0.1:{port}" in why
    assert "not well" not in said["lake://a.csv"][1]
    assert said["s3://"][0] == "wrong"
    assert said[str(here)][0] == "ok"


async def test_a_model_of_several_that_is_away_is_named(tmp_path: Path) -> None:
    async with json_server("/", lambda rows: [0 for _ in rows]) as server:
        cfg = config.Config(
            kafka=config.Kafka(bootstrap_servers=f"127.0.0.1:{own_port()}", timeout_ms=500),
            objects=config.Objects(endpoint_url=f"file://{tmp_path}"),
            model=config.Model(url=server.url, protocol="http"),
            models=[NamedModel(name="ts", url=f"http://127.0.0.1:{own_port()}", protocol="http")],
        )
        found = [one async for one in examine(cfg, (), fix=False)]
    levels = {one.what: one.level for one in found}
    assert (levels["model"], levels["model ts"], levels["store"]) == ("ok", "wrong", "ok")
