"""One page for several processes shows the rows of all, passes their pictures on, and knows which
of them delivered an object.
"""

from typing import NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import structs

from penstock import config
from penstock.adapters.http import running_worker
from penstock.adapters.http.running_worker import way_of
from penstock.core.records.output_records import Labels
from penstock.ops.http_server import as_json, serving
from penstock.ops.members_page import serve_members
from penstock.ops.page.one_object import SAMPLES, shown, way_page
from penstock.telemetry.recent import TimeSpent, Way, Ways
from tests.support.worker import own_port

HTTP = config.Http(port=0, token="t", samples=True)


class Member(NamedTuple):
    number: int
    url: str
    restarts: int = 0
    running: bool = True


def pages(stream: str) -> dict[str, Handler]:
    """Of a member with one sample, which is a picture."""

    async def samples(_: web.Request) -> web.Response:
        return as_json({"samples": [{"number": 7, "stream": stream, "picture": f"{SAMPLES}/7"}]})

    async def picture(_: web.Request) -> web.Response:
        return shown("image/png", stream.encode())

    return {SAMPLES: samples, f"{SAMPLES}/7": picture}


async def test_samples_of_all_members_are_joined_and_each_picture_is_its_own() -> None:
    async with (
        serving(HTTP, pages("cam-1")) as one,
        serving(HTTP, pages("cam-2")) as two,
        serve_members(HTTP, [Member(0, one), Member(1, two)]) as url,
        aiohttp.ClientSession(url, headers={"Authorization": "Bearer t"}) as session,
    ):
        async with session.get(SAMPLES) as answer:
            found = (await answer.json())["samples"]
        assert [one["stream"] for one in found] == ["cam-1", "cam-2"]
        for each in found:
            async with session.get(each["picture"]) as answer:
                assert answer.content_type == "image/png"
                assert await answer.text() == each["stream"]
        for nobody in (f"{SAMPLES}/0/8", f"{SAMPLES}/9/7"):
            async with session.get(nobody) as answer:
                assert answer.status == 404


LABELS = Labels("refs", "out", "rows", None, markers=True)
WAY = Way(TimeSpent(call=0.031), 0.05, 64, 8, 1)


def remembering(of: str, model: str | None) -> dict[str, Handler]:
    """The page of a worker that has delivered this object."""
    ways = Ways()
    ways.add(of, model, WAY)
    return way_page(ways, LABELS)


async def test_an_object_s_way_is_told_by_the_member_that_delivered_it() -> None:
    async with (
        serving(HTTP, way_page(Ways(), LABELS)) as one,
        serving(HTTP, remembering("refs/0/7/0", None)) as two,
        serve_members(HTTP, [Member(0, one), Member(1, two)]) as url,
    ):
        http = structs.replace(HTTP, port=int(url.rpartition(":")[2]))
        found = await way_of(http, "refs/0/7/0/5", "rows", "out")
        assert isinstance(found, running_worker.Way)
        assert (found.took_ms, found.times_ms["call"]) == (50.0, 31.0)
        assert found.batch == running_worker.Batch(64, 8, 1)
        for id, model, topic in (
            ("refs/0/8/0/5", "rows", "out"),
            ("refs/0/7/0/5", "night", "out"),  # another model's answer to the same object
            ("refs/0/7/0/5", "rows", "elsewhere"),  # another job's
        ):
            why = await way_of(http, id, model, topic)
            assert why == "no worker that answered (http.port, http.peers) has delivered it lately"


async def test_peers_are_asked_where_the_worker_itself_is_not_here() -> None:
    async with serving(HTTP, remembering("refs/0/7/0", "a#b%c")) as url:
        peers = ["no-such-host.invalid", url.removeprefix("http://")]
        http = structs.replace(HTTP, port=own_port(), peers=peers)
        found = await way_of(http, "refs/0/7/0/-", "a#b%c", "out")
        assert isinstance(found, running_worker.Way)
        stranger = structs.replace(http, token="another")
        why = await way_of(stranger, "refs/0/7/0/-", "a#b%c", "out")
        assert isinstance(why, str)
        assert "1 of 2 did not answer; 1 of 2 want another token" in why
        wrong = await way_of(structs.replace(http, peers=["http://x"]), "a/0/0/0/0", "rows", "out")
        assert isinstance(wrong, str)
        assert "is no address" in wrong
    silent = structs.replace(http, peers=None)
    assert await way_of(silent, "a/0/0/0/0", "rows", "out") == (
        "no worker answers (http.port, http.peers)"
    )
