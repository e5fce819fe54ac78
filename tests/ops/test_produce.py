"""Announcing objects: what is refused, and what is hinted at."""

from collections.abc import AsyncIterator

import pytest

from penstock import config
from penstock.adapters.memory.objects import MemoryObjects
from penstock.embedded.broker import EmbeddedBroker
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ops.produce import FEW, Produced, produce

pytest.importorskip("confluent_kafka")


@pytest.fixture
async def cfg() -> AsyncIterator[config.Config]:
    with EmbeddedBroker() as broker:
        yield config.Config(kafka=config.Kafka(bootstrap_servers=broker.bootstrap_servers))


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
    return await produce(cfg, objects, urls, stream=stream, on_sent=lambda _: None)


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
    assert (sent, sent.hint) == (Produced(FEW, FEW), None)
    forced = await announce(cfg, objects, "s3://b/site-*/x.csv", stream="all")
    assert forced.hint is not None
    assert (await announce(cfg, objects, "s3://b/one/0.csv")).hint is None
