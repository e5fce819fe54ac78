"""One page for several processes shows the rows of all, passes their pictures on, and knows which
of them delivered an object.
"""

from typing import NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import structs

from penstock import config
from penstock.adapters.http.running_worker import way_of
from penstock.ops.listening import as_json, serving
from penstock.ops.page.samples import PATH, shown
from penstock.ops.page.way import way_page
from penstock.ops.processes.members_page import serve_members
from penstock.process.children import free_port
from penstock.telemetry.ways import TimeSpent, Way, Ways

HTTP = config.Http(port=0, token="t", samples=True)


class Member(NamedTuple):
    number: int
    url: str
    restarts: int = 0
    running: bool = True


def pages(stream: str) -> dict[str, Handler]:
    """Of a member with one sample, which is a picture."""

    async def samples(_: web.Request) -> web.Response:
        return as_json({"samples": [{"number": 7, "stream": stream, "picture": f"{PATH}/7"}]})

    async def picture(_: web.Request) -> web.Response:
        return shown("image/png", stream.encode())

    return {PATH: samples, f"{PATH}/7": picture}


async def test_samples_of_all_members_are_joined_and_each_picture_is_its_own() -> None:
    async with (
        serving(HTTP, pages("cam-1")) as one,
        serving(HTTP, pages("cam-2")) as two,
        serve_members(HTTP, [Member(0, one), Member(1, two)]) as url,
        aiohttp.ClientSession(url, headers={"Authorization": "Bearer t"}) as session,
    ):
        async with session.get(PATH) as answer:
            found = (await answer.json())["samples"]
        assert [one["stream"] for one in found] == ["cam-1", "cam-2"]
        for each in found:
            async with session.get(each["picture"]) as answer:
                assert answer.content_type == "image/png"
                assert await answer.text() == each["stream"]
        for nobody in (f"{PATH}/0/8", f"{PATH}/9/7"):
            async with session.get(nobody) as answer:
                assert answer.status == 404


async def test_an_object_s_way_is_told_by_the_member_that_delivered_it() -> None:
    ways = [Ways(), Ways()]
    ways[1].add("refs/0/7/0", None, Way(TimeSpent(call=0.031), 0.05, 64, 8, 1))
    async with (
        serving(HTTP, way_page(ways[0])) as one,
        serving(HTTP, way_page(ways[1])) as two,
        serve_members(HTTP, [Member(0, one), Member(1, two)]) as url,
    ):
        http = structs.replace(HTTP, port=int(url.rpartition(":")[2]))
        found = await way_of(http, "refs/0/7/0/5", "rows")
        assert found is not None
        assert (found["took_ms"], found["times_ms"]["call"]) == (50.0, 31.0)
        assert found["batch"] == {"rows": 64, "objects": 8, "tries": 1}
        assert await way_of(http, "refs/0/8/0/5", "rows") is None


async def test_a_peer_is_asked_where_the_worker_itself_is_not_here() -> None:
    ways = Ways()
    ways.add("refs/0/7/0", "night", Way(TimeSpent(), 0.05))
    async with serving(HTTP, way_page(ways)) as url:
        peers = ["no-such-host.invalid", url.removeprefix("http://")]
        http = structs.replace(HTTP, port=free_port(), peers=peers)
        found = await way_of(http, "refs/0/7/0/-", "night")
    assert found is not None
    assert found["batch"] is None
