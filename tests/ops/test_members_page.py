"""One page for several processes shows the rows of all, and passes their pictures on."""

from typing import NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from penstock import config
from penstock.ops.listening import as_json, serving
from penstock.ops.page.samples import PATH, shown
from penstock.ops.processes.members_page import serve_members

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
