"""One page for several processes shows the rows of all, passes their pictures on, and knows which
of them delivered an object.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import aiohttp
from msgspec import structs
from prometheus_client import CollectorRegistry

from penstock import config
from penstock.adapters.http import running_worker
from penstock.adapters.http.running_worker import way_of
from penstock.core.records.output_records import Labels
from penstock.ops.members_page import MembersSource
from penstock.ops.page.page import ALIVE, SAMPLES, Page, PageSource, Picture, Probe
from penstock.ops.worker_page import told_way
from penstock.telemetry.delivery_times import Way, Ways
from penstock.telemetry.worker import TimeSpent
from tests.support.worker import own_port

HTTP = config.Http(port=0, token="t", samples=True)


class Member(NamedTuple):
    number: int
    url: str
    restarts: int = 0
    running: bool = True


class OfOneStream(PageSource):
    """A member with one sample, which is a picture, and with these ways."""

    def __init__(self, stream: str, ways: Ways | None = None) -> None:
        self._stream = stream
        self._ways = ways or Ways()

    async def ready(self) -> Probe:
        return ALIVE

    async def metrics(self) -> CollectorRegistry:
        return CollectorRegistry()

    async def status(self) -> dict[str, Any]:
        return {}

    async def samples(self) -> list[dict[str, Any]]:
        return [{"number": 7, "stream": self._stream, "picture": "7"}]

    async def picture(self, numbers: Sequence[int]) -> Picture | None:
        return Picture("image/png", self._stream.encode()) if numbers == [7] else None

    async def way(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        return told_way(query, self._ways, LABELS)


def supervisor(*members: str) -> AbstractAsyncContextManager[str]:
    """The page of a supervisor of the members with these pages."""
    found = [Member(number, url) for number, url in enumerate(members)]
    return Page(HTTP, MembersSource(found, HTTP.token)).open()


async def test_samples_of_all_members_are_joined_and_each_picture_is_its_own() -> None:
    async with (
        Page(HTTP, OfOneStream("cam-1")).open() as one,
        Page(HTTP, OfOneStream("cam-2")).open() as two,
        supervisor(one, two) as url,
        aiohttp.ClientSession(url, headers={"Authorization": "Bearer t"}) as session,
    ):
        async with session.get(SAMPLES) as answer:
            samples = (await answer.json())["samples"]
        assert [sample["stream"] for sample in samples] == ["cam-1", "cam-2"]
        for each in samples:
            async with session.get(each["picture"]) as answer:
                assert answer.content_type == "image/png"
                assert await answer.text() == each["stream"]
        for nobody in (f"{SAMPLES}/0/8", f"{SAMPLES}/9/7"):
            async with session.get(nobody) as answer:
                assert answer.status == 404


LABELS = Labels("refs", "out", "rows", None, markers=True)
WAY = Way(TimeSpent(call=0.031), 0.05, 64, 8, 1)


def remembering(of: str, model: str | None) -> AbstractAsyncContextManager[str]:
    """The page of a worker that has delivered this object."""
    ways = Ways()
    ways.add(of, model, WAY)
    return Page(HTTP, OfOneStream("cam-1", ways)).open()


async def test_an_object_s_way_is_told_by_the_member_that_delivered_it() -> None:
    async with (
        Page(HTTP, OfOneStream("cam-1")).open() as one,
        remembering("refs/0/7/0", None) as two,
        supervisor(one, two) as url,
    ):
        http = structs.replace(HTTP, port=int(url.rpartition(":")[2]))
        way = await way_of(http, "refs/0/7/0/5", "rows", "out")
        assert isinstance(way, running_worker.ReportedWay)
        assert (way.took_ms, way.times_ms["call"]) == (50.0, 31.0)
        assert way.batch == running_worker.ReportedBatch(64, 8, 1)
        for id, model, topic in (
            ("refs/0/8/0/5", "rows", "out"),
            ("refs/0/7/0/5", "night", "out"),  # another model's answer to the same object
            ("refs/0/7/0/5", "rows", "elsewhere"),  # another job's
        ):
            why = await way_of(http, id, model, topic)
            assert why == "no worker that answered (http.port, http.peers) has delivered it lately"


async def test_peers_are_asked_where_the_worker_itself_is_not_here() -> None:
    async with remembering("refs/0/7/0", "a#b%c") as url:
        peers = ["no-such-host.invalid", url.removeprefix("http://")]
        http = structs.replace(HTTP, port=own_port(), peers=peers)
        way = await way_of(http, "refs/0/7/0/-", "a#b%c", "out")
        assert isinstance(way, running_worker.ReportedWay)
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
