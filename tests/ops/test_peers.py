"""The page of one member tells of the others, and names one that is silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from penstock import config
from penstock.core.diagnosis.diagnose import diagnose, with_diagnosis
from penstock.ops.http_server import as_json, serving
from penstock.ops.page.whole_group import MOST_BYTES, Peers
from tests.support.status_documents import document
from tests.support.waiting import until
from tests.support.worker import own_port

TOKEN = "open sesame"


@asynccontextmanager
async def member(answer: Any) -> AsyncIterator[str]:
    """A page that answers with this status; the address of it."""

    async def status(_: web.Request) -> web.Response:
        return answer if isinstance(answer, web.Response) else as_json(answer)

    async with serving(config.Http(port=0, token=TOKEN), {"/api/status": status}) as url:
        yield url.removeprefix("http://")


LATE = "no answer within 2 s"


async def told(*named: str, is_mute: bool = False) -> list[dict[str, Any]]:
    """What the page tells of these peers. A pause of the machine makes all of them late, so the
    peers are asked again until none is, unless one of them `is_mute`.
    """
    peers = Peers(config.Http(peers=list(named), token=TOKEN))
    async with peers.watching():
        assert peers.look() is None

        async def are_told() -> bool:
            seen = peers.look()
            return seen is not None and (
                is_mute or all(one["why"] != LATE for one in seen["members"])
            )

        await until(are_told, lambda: "peers are told")
        look = peers.look()
    assert look is not None
    assert look["left_out"] == 0
    members: list[dict[str, Any]] = look["members"]
    return members


def late() -> dict[str, Any]:
    whole = document() | {"host": "worker-1", "pid": 7, "backlog_s": 4.0}
    outage = {"service": "model server", "away_s": 12.0, "why": "refused"}
    whole |= {"outages": [outage], "model": whole["model"] | {"asked_s": 13.0}}
    return with_diagnosis(whole, diagnose(whole))


async def test_each_member_is_told_with_its_figures_and_its_first_line() -> None:
    well = document(partitions=2) | {"host": "worker-0", "pid": 1, "problems": []}
    both = {"v": 1, "processes": [well, late()], "problems": late()["problems"]}
    async with member(well) as first, member(late()) as second, member(both) as supervisor:
        one, other, joined = sorted(
            await told(first, second, supervisor),
            key=lambda each: len(each["pids"]) * 10 + each["pids"][0],
        )
    assert (one["host"], one["partitions"], one["first"]) == ("worker-0", 2, None)
    assert one["rows_per_s"] == well["rates"]["rows_per_s"]
    assert one["lag"] == sum(each["lag"] for each in well["assignments"])
    assert other["level"] == "bad"
    assert other["first"].startswith("the model server has not answered for 12.0 s")
    assert (joined["pids"], joined["partitions"], joined["backlog_s"]) == ([1, 7], 6, 4.0)


async def test_a_supervisor_is_told_by_its_processes_that_run() -> None:
    gone = {"process": 0, "restarts": 1, "up": False, "error": "it does not run"}
    async with member({"v": 1, "processes": [gone, late()]}) as supervisor:
        [found] = await told(supervisor)
    assert (found["host"], found["pids"], found["backlog_s"]) == ("worker-1", [7], 4.0)


async def test_one_that_is_silent_or_talks_nonsense_is_named_with_the_reason() -> None:
    nobody = f"127.0.0.1:{own_port()}"
    long = web.Response(body=b"[" * (MOST_BYTES + 1))
    async with member(["no status"]) as strange, member(long) as endless:
        found = {
            one["peer"]: one["why"] for one in await told(nobody, strange, endless, "no.invalid")
        }
    assert found[nobody].startswith("no answer: ")
    assert found[strange].startswith("its answer is no status: ")
    assert found[endless] == "its answer is no status: it is too long"
    assert found["no.invalid:8900"].startswith("its name has no address: ")


async def test_figures_of_a_wrong_kind_are_no_status_and_end_no_worker() -> None:
    workers = [{"flow": {"p99_ms": "slow"}}, {"flow": {"p99_ms": 1.0}}]
    async with member({"v": 1, "processes": workers}) as strange:
        [found] = await told(strange)
    assert found["why"].startswith("its answer is no status: ")


async def test_one_that_takes_the_question_and_says_nothing_is_silent() -> None:
    is_over = asyncio.Event()

    async def mute(_: web.Request) -> web.Response:
        await is_over.wait()
        return web.Response()

    async with serving(config.Http(port=0, token=TOKEN), {"/api/status": mute}) as url:
        [found] = await told(url.removeprefix("http://"), is_mute=True)
        is_over.set()
    assert found["why"] == LATE


async def test_without_peers_nobody_is_asked() -> None:
    peers = Peers(config.Http())
    async with peers.watching():
        assert peers.look() is None
    assert orjson.dumps(peers.look()) == b"null"
