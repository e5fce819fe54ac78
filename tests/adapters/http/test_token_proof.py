"""Who asks a worker proves the token and does not send it."""

import time

import aiohttp
from aiohttp import web

from penstock import config
from penstock.adapters.http.running_worker import MOST_S, is_proof, page_of, proof, status_of
from penstock.ops.http_server import as_json, serving
from penstock.ops.page.whole_group import Peers
from tests.support.waiting import until

TOKEN = "open s\N{LATIN SMALL LETTER E WITH ACUTE}same"


async def test_whoever_listens_at_the_address_does_not_get_the_token() -> None:
    heard: list[str] = []

    async def status(request: web.Request) -> web.Response:
        heard.append(f"{request.raw_path} {dict(request.headers)}")
        return as_json({"problems": []})

    # It has no token itself, so it answers everybody.
    async with serving(config.Http(port=0), {"/api/status": status, "/": status}) as url:
        http = config.Http(port=int(url.rpartition(":")[2]), token=TOKEN)
        assert await status_of(http) == {"problems": []}
        assert await page_of(http, "/", 60.0) is not None
        peers = Peers(config.Http(peers=[url.removeprefix("http://")], token=TOKEN))
        async with peers.watching():

            async def is_told() -> bool:
                return peers.look() is not None

            await until(is_told, lambda: "the peer is asked")
    assert len(heard) >= 3
    for one in heard:
        assert "Penstock " in one
        assert "same" not in one


async def test_whoever_listens_cannot_ask_for_the_proof_of_another_page() -> None:
    heard: list[str] = []

    async def lead(request: web.Request) -> web.Response:
        raise web.HTTPFound("/api/samples")

    async def samples(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization", ""))
        return web.Response()

    async with serving(config.Http(port=0), {"/readyz": lead, "/api/samples": samples}) as url:
        http = config.Http(port=int(url.rpartition(":")[2]), token=TOKEN)
        assert await page_of(http, "/readyz", 60.0) is None
    assert heard == []


async def test_a_proof_is_good_for_one_path_and_a_few_minutes() -> None:
    path = "/api/way?id=a%20b/0&x=1"
    given = proof(TOKEN, path, 1_000_000)
    for at_s in (1_000_000, 1_000_000 + MOST_S, 1_000_000 - MOST_S):
        assert is_proof(given, TOKEN, path, at_s)
    assert not is_proof(given, TOKEN, path, 1_000_001 + MOST_S)
    assert not is_proof(given, TOKEN, "/api/status", 1_000_000)
    assert not is_proof(given, "another", path, 1_000_000)
    many_digits = (f"Penstock {'9' * 5_000}:x", f"Penstock {1_000_000:0>5000}:x")
    cut = (given.upper(), given[:-1], "Penstock ", "Penstock 1:", "Penstock -1:x", "")
    for other in (*cut, *many_digits, "Penstock \u0661:x", "\udcff"):
        assert not is_proof(other, TOKEN, path, 1_000_000)


async def test_a_proof_opens_pages_and_changes_nothing() -> None:
    asked: list[str] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.Response()

    http = config.Http(port=0, token=TOKEN)
    async with serving(http, {"/api/way": page}, actions={"/api/act": page}) as url:
        known = config.Http(port=int(url.rpartition(":")[2]), token=TOKEN)
        assert await page_of(known, "/api/way?id=a b/\u00e9", 60.0) == b""
        assert await page_of(config.Http(port=known.port), "/api/way", 60.0) is None
        headers = {"Authorization": proof(TOKEN, "/api/act", int(time.time()))}
        async with (
            aiohttp.ClientSession(url) as session,
            session.post("/api/act", headers=headers) as answer,
        ):
            assert answer.status == 401
    assert asked == ["GET"]
