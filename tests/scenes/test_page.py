"""What is to be seen of a scenes worker."""

import json

import aiohttp
import pytest

from penstock import config
from penstock.scenes.core.rules import Rules
from penstock.scenes.page import DOCUMENT, scenes_page
from tests.scenes.test_ledger import BATCHES
from tests.scenes.world import World, said


async def world_with_a_dead_member() -> World:
    """`c` was there, and then is not."""
    world = World()
    worker = await world.worker()
    for batch in BATCHES[:3]:
        await worker.handle(batch)
    for step in range(4, 40):
        world.now += 50
        await worker.handle([said("a", step), said("b", step)])
    world.now += 200
    await worker.tick()
    world.last = worker
    return world


async def test_the_page_says_who_is_there_and_who_is_not() -> None:
    world = await world_with_a_dead_member()
    assert world.last is not None
    (look,) = world.last.looks(10)
    states = {each["member"]: each["state"] for each in look["members"]}
    assert states == {"a": "present", "b": "present", "c": "late"}
    assert look["last"][0]["absent"] == ["c"]
    assert look["counts"]["complete"] >= 3
    (step, *_) = look["completeness"]
    assert 0.6 < step["present"] < 0.9
    await world.last.give_up()
    assert list(world.last.looks(10)) == []


async def test_what_is_shown_is_bounded_whatever_the_sites_and_members_are_called() -> None:
    world = World(Rules())
    worker = await world.worker()
    for site in (f"{number:03}{'s' * 200}" for number in range(100)):
        for step in range(2):
            names = [f"{number:03}{'m' * 200}" for number in range(100)]
            ours = [said(name, step) for name in names]
            moved = [our.value.replace(b'"s/', f'"{site}/'.encode()) for our in ours]
            await worker.handle(
                our._replace(site=site, value=value) for our, value in zip(ours, moved, strict=True)
            )
    shown = list(worker.looks(1_000))
    assert 1 < len(shown) < 100
    assert len(json.dumps(shown)) < 6_000_000
    cfg = config.load(None, {"PENSTOCK_HTTP__PORT": "0"})
    async with (
        scenes_page(cfg, worker) as url,
        aiohttp.ClientSession() as session,
        session.get(url + "/metrics") as answer,
    ):
        assert len(await answer.read()) < 6_000_000


async def test_metrics_are_by_site() -> None:
    world = await world_with_a_dead_member()
    assert world.last is not None
    cfg = config.load(None, {"PENSTOCK_HTTP__PORT": "0"})
    world.last.keyed.refused("no_site", "cam1")
    async with scenes_page(cfg, world.last) as url, aiohttp.ClientSession() as session:
        said_by = {}
        for path in ("/", "/healthz", "/readyz", "/metrics", "/api/status"):
            async with session.get(url + path) as answer:
                assert answer.status == 200, path
                said_by[path] = await answer.text()
        assert said_by["/"] == DOCUMENT
        for line in (
            'penstock_scenes_members{site="s",state="late"} 1.0',
            'penstock_scenes_total{closed_by="quorum",site="s"}',
            'penstock_scenes_predictions_total{site="s",what="arrived"}',
            'penstock_scenes_skew_milliseconds{member="a",site="s"} 0.0',
            'penstock_scenes_predictions_total{site="",what="no_site"} 1.0',
        ):
            assert line in said_by["/metrics"]
        # A second worker of the host has the same configuration.
        taken = config.load(None, {"PENSTOCK_HTTP__PORT": url.rpartition(":")[2]})
        async with scenes_page(taken, world.last) as other:
            assert other != url
            await world.last.give_up()
            async with session.get(other + "/readyz") as answer:
                assert answer.status == 503


@pytest.mark.parametrize("forbidden", ["innerHTML", "http://", "https://", "eval("])
def test_nothing_on_the_page_runs_that_a_site_says(forbidden: str) -> None:
    assert forbidden not in DOCUMENT
