"""Announcing objects: what is refused, and what is hinted at."""

import msgspec
import orjson
import pytest

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.memory import MemoryObjects
from penstock.core.routing.model_routes import ModelRoute, Routes
from penstock.errors import EXIT_USAGE, Fatal
from penstock.tools.jobs import listing_position
from penstock.tools.jobs.produce import FEW, Produced, Sending, Wanted, produce
from tests.support.refusing_sink import RefusingSink

pytest.importorskip("confluent_kafka")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process of the command is waited for."""
    monkeypatch.setattr(listing_position, "BEGUN_S", 0.0)


@pytest.fixture
def objects() -> MemoryObjects:
    store = MemoryObjects()
    for number in range(FEW):
        store.put("b", f"one/{number}.csv", b"1\n")
        store.put("b", f"site-{number}/x.csv", b"1\n")
    return store


async def announce(
    cfg: config.Config, objects: MemoryObjects, *urls: str, stream: str | None = None
) -> Produced:
    routes = Routes(["rows", "ts"], [ModelRoute(("ts",), stream="site-3")])
    wanted = Wanted(urls, stream=stream)
    return await produce(cfg, objects, wanted, routes, on_sent=lambda _: None)


async def test_a_url_that_names_nothing_is_an_error(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    assert (await announce(cfg, objects, "s3://b/one/0.csv")).references == 1
    for url in ("s3://b/one/typo.csv", "s3://nowhere/one/0.csv", "s3://b/typo-*"):
        with pytest.raises(Fatal) as caught:
            await announce(cfg, objects, url)
        assert caught.value.exit_code == EXIT_USAGE


async def test_a_local_file_is_nothing_to_announce(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    for url in ("rows.csv", "file:///tmp/rows.csv", "-"):
        with pytest.raises(Fatal, match="penstock predict") as caught:
            await announce(cfg, objects, url)
        assert 'objects.endpoint_url = "file:///FOLDER"' in str(caught.value)
        assert "[stores.NAME] with a route" in str(caught.value)


@pytest.mark.parametrize("url", ["s3://b/one", "s3://b/one/"])
async def test_a_folder_is_announced_by_a_glob(
    cfg: config.Config, objects: MemoryObjects, url: str
) -> None:
    with pytest.raises(Fatal, match=r"if it is a folder, name what is in it: '\.\.\./one/\*\*'"):
        await announce(cfg, objects, url)


async def test_many_references_of_one_key_are_told_to_be_one_partition(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    assert "one partition" in ((await announce(cfg, objects, "s3://b/one/*")).hint or "")
    sent = await announce(cfg, objects, "s3://b/site-*/x.csv")
    assert (sent.references, len(sent.streams), sent.hint) == (FEW, FEW, None)
    forced = await announce(cfg, objects, "s3://b/site-*/x.csv", stream="all")
    assert forced.hint is not None
    assert (await announce(cfg, objects, "s3://b/one/0.csv")).hint is None


async def test_streams_are_named_as_a_worker_names_them_and_their_models_told(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    objects.put("b", "root.csv", b"1\n")
    sent = await announce(cfg, objects, "s3://b/root.csv", "s3://b/site-3/*", "s3://b/site-4/*")
    assert {name: stream.models for name, stream in sent.streams.items()} == {
        "b": {"rows"}, "site-3": {"ts"}, "site-4": {"rows"},
    }  # fmt: skip


async def test_a_pattern_names_the_streams_and_its_name_stands_in_the_reference(
    cfg: config.Config, objects: MemoryObjects
) -> None:
    """A worker whose kafka.stream_from says otherwise still follows the command."""
    cfg = msgspec.structs.replace(
        cfg, kafka=msgspec.structs.replace(cfg.kafka, stream_from="^(?P<stream>one)")
    )
    by_setting = await announce(cfg, objects, "s3://b/one/1.csv")
    by_command = await announce(cfg, objects, "s3://b/one/1.csv", stream=r"/(?P<stream>\d+)\.csv")
    assert (list(by_setting.streams), list(by_command.streams)) == (["one"], ["1"])
    with pytest.raises(Fatal, match="no regular expression"):
        await announce(cfg, objects, "s3://b/one/1.csv", stream="(?P<stream>")
    async with open_reader(cfg.kafka, "read_uncommitted") as reader:
        found: list[bytes] = []
        spans = await reader.spans("refs")
        await reader.read(
            "refs", spans, lambda *record: found.append(record[3] or b""), lambda _: None
        )
    assert sorted(orjson.loads(one)["stream"] for one in found if b"stream" in one) == ["1"]


async def test_a_reference_that_the_topic_refuses_costs_no_other_and_is_told() -> None:
    sink = RefusingSink("refs", lambda value: value in (b"1", b"3", b"4"))
    sending = Sending(sink, "refs", 1, None)
    for number in range(6):
        sending.add(0, b"k", b"%d" % number, (0, number))
    await sending.settle()
    assert [value for _, value in sink.topics["refs"][0]] == [b"0", b"2", b"5"]
    assert (sending.acknowledged, sending.refused) == (3, 3)
    assert sending.first_refused == [f"{number}: no such content" for number in (1, 3, 4)]
