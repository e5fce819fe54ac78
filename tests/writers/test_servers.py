"""The answers of docs/models.md, as servers and proxies of others give them.

Their programs and settings are in `servers`; `scripts/writers` installs what runs these. What a
server says is its own; what follows is held against the tables of the page.
"""

import asyncio
import getpass
import gzip
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from aiohttp import web

from penstock import Prediction, config, predict
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.core.rows.payload import JsonRows
from penstock.errors import PenstockError, Transient
from realstack.layout import free_ports
from tests.support.waiting import until
from tests.writers.support import IS_LONG, run, tool

PROGRAMS = Path(__file__).parent / "servers"
ROWS = range(1, 9)
DOUBLED = [2 * row for row in ROWS]
LONG = "x" * 400_000

NOW = {"Retry-After": "0"}

Start = Callable[[Path, int, int, int], list[str]]
Urls = Callable[[str], Awaitable[str]]


def uvicorn(folder: Path, port: int, *_: int) -> list[str]:
    app = ["fastapi_model:app", "--app-dir", str(PROGRAMS), "--port", str(port)]
    return [tool("writers-python"), "-m", "uvicorn", *app, "--log-level", "critical"]


def gunicorn(folder: Path, port: int, *_: int) -> list[str]:
    app = ["flask_model:app", "--chdir", str(PROGRAMS), "--bind", f"127.0.0.1:{port}"]
    return [tool("writers-python"), "-m", "gunicorn", *app, "--threads=4", "--log-level=critical"]


def node(folder: Path, port: int, *_: int) -> list[str]:
    return [tool("node"), str(PROGRAMS / "node_model.js"), str(port)]


def golang(folder: Path, port: int, *_: int) -> list[str]:
    run("go", "build", "-o", folder / "model", PROGRAMS / "model.go")
    return [str(folder / "model"), str(port)]


def java(folder: Path, port: int, *_: int) -> list[str]:
    tool("javac")  # java compiles the program itself, if it can
    return [tool("java"), "-Xmx64m", str(PROGRAMS / "Model.java"), str(port)]


def settings_of(name: str, folder: Path, port: int, upstream: int, dead: int) -> str:
    text = (PROGRAMS / name).read_text().replace("UPSTREAM", str(upstream))
    text = text.replace("PORT", str(port)).replace("DEAD", str(dead))
    text = text.replace("FOLDER", str(folder)).replace("USER", getpass.getuser())
    (folder / name).write_text(text)
    return str(folder / name)


def nginx(folder: Path, *ports: int) -> list[str]:
    return [tool("nginx"), "-c", settings_of("nginx.conf", folder, *ports), "-e", "stderr"]


def haproxy(folder: Path, *ports: int) -> list[str]:
    return [tool("haproxy"), "-db", "-q", "-f", settings_of("haproxy.cfg", folder, *ports)]


def caddy(folder: Path, *ports: int) -> list[str]:
    config_path = settings_of("Caddyfile", folder, *ports)
    return [tool("caddy"), "run", "--adapter", "caddyfile", "--config", config_path]


def envoy(folder: Path, *ports: int) -> list[str]:
    config_path = settings_of("envoy.yaml", folder, *ports)
    options = ["--concurrency", "1", "--log-level", "critical", "--disable-hot-restart"]
    return [tool("envoy"), "-c", config_path, *options]


MODELS: dict[str, Start] = {
    "uvicorn": uvicorn, "gunicorn": gunicorn, "node": node, "go": golang, "java": java
}  # fmt: skip
PROXIES: dict[str, Start] = {"nginx": nginx, "haproxy": haproxy, "caddy": caddy, "envoy": envoy}


def started(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(timeout=60)


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.fixture(scope="module")
def upstream_port() -> int:
    (port,) = free_ports(["upstream"]).values()
    return port


@pytest.fixture(scope="module")
def urls(upstream_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Urls]:
    """The address of a server, which is started when a test first asks for it."""
    found: dict[str, str] = {}
    with ExitStack() as servers:

        async def url(name: str) -> str:
            if name not in found:
                port, dead = free_ports(["port", "dead"]).values()
                folder = tmp_path_factory.mktemp(name)
                command = (MODELS | PROXIES)[name](folder, port, upstream_port, dead)
                servers.callback(end, started(command, folder))
                await until(lambda: listens(port), (folder / "log").read_text)
                found[name] = f"http://127.0.0.1:{port}"
            return found[name]

        yield url


class Upstream:
    """The model behind a proxy: `/.../MOOD/TIMES` is how it ends the first so many requests."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def take(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=204)
        rows = await request.json()
        self.asked[request.path] += 1
        *_, mood, times = request.path.split("/")
        body = ("[" + ",".join(str(2 * row[0]) for row in rows) + "]").encode()
        if self.asked[request.path] <= int(times):
            return await self._in(mood, request, body)
        return web.Response(body=body, content_type="application/json")

    async def _in(self, mood: str, request: web.Request, body: bytes) -> web.StreamResponse:
        assert request.transport is not None
        if mood == "slow":
            await asyncio.Event().wait()
        if mood == "packed":
            packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            return web.Response(body=gzip.compress(body), headers=packed)
        if mood == "half":
            answer = web.StreamResponse(headers={"Content-Length": str(len(body))})
            await answer.prepare(request)
            await answer.write(body[:3])
        if mood in ("half", "hangup"):
            request.transport.close()
            return web.Response()
        status = int(mood)
        return web.Response(status=status, body=body if status < 300 else b"", headers=NOW)


@pytest.fixture
async def upstream(upstream_port: int) -> AsyncIterator[Upstream]:
    model = Upstream()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", model.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", upstream_port).start()
        yield model
    finally:
        await runner.cleanup()


class Asked(NamedTuple):
    predictions: list[Any]
    rejected: list[Prediction]


async def ask(
    folder: Path,
    url: str,
    protocol: config.Protocol = "http",
    text: str = "",
    most_rows: int = len(ROWS),
) -> Asked:
    """The predictions of eight rows, in order, and the rows that were rejected. `text`: what each
    row has beside its number. `most_rows`: of a request.
    """
    rows = [[row, text] if text else [row] for row in ROWS]
    (folder / "rows.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = {
        "model": {"request": "json", "timeout_ms": 5_000},
        "window": {"max_rows": most_rows},
    }
    answers = predict(str(folder / "rows.ndjson"), model=url, protocol=protocol, config=settings)
    all_ = [answer async for answer in answers if answer.row is not None]
    good = [one.prediction for one in all_ if not one.error]
    return Asked(good, [one for one in all_ if one.error])


def each(servers: dict[str, Start], *names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", names or list(servers))


@each(MODELS)
async def test_rows_are_answered(tmp_path: Path, urls: Urls, server: str) -> None:
    assert await ask(tmp_path, await urls(server) + "/predictions/200-0-any-http") == (DOUBLED, [])


def with_each(server: str, *statuses: int, others: Sequence[int]) -> pytest.MarkDecorator:
    """All statuses by one server, some by each other."""
    pairs = [(one, status) for one in MODELS for status in (statuses if one == server else others)]
    return pytest.mark.parametrize(("server", "status"), pairs)


@with_each(
    "go", 408, 420, 423, 425, 429, 444, 460, 463, 499, 502, 503, 504, 509, *range(520, 531), 598,
    599, others=(408, 425, 429, 502, 503, 504),
)  # fmt: skip
async def test_a_busy_or_ill_server_is_waited_for(
    tmp_path: Path, urls: Urls, server: str, status: int
) -> None:
    url = f"{await urls(server)}/predictions/{status}-2-any-http"
    assert await ask(tmp_path, url) == (DOUBLED, [])


@with_each(
    "go", 400, 406, 409, 412, 415, 416, 418, 422, 424, 500, others=(400, 409, 422, 500)
)  # fmt: skip
async def test_a_row_that_is_refused_is_rejected_alone(
    tmp_path: Path, urls: Urls, server: str, status: int
) -> None:
    found = await ask(tmp_path, f"{await urls(server)}/predictions/{status}-99-5-http")
    hold_rejected(found, "model_rejected", str(status))


def hold_rejected(found: Asked, code: str, text: str) -> None:
    assert found.predictions == [2 * row for row in ROWS if row != 5]
    (one,) = found.rejected
    assert one.error is not None
    assert (one.row, one.error.code) == (4, code)
    assert text in one.error.message


@each(MODELS)
async def test_a_row_for_which_the_model_raises_is_rejected_alone(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    """The Python frameworks answer 500; the other servers hang up."""
    found = await ask(tmp_path, await urls(server) + "/predictions/raise-999-5-http")
    if server in ("uvicorn", "gunicorn"):
        hold_rejected(found, "model_rejected", "answered 500: ")
    else:
        hold_rejected(found, "unavailable", "")


@pytest.mark.skipif(not IS_LONG, reason="EVERY_WRITER is not set: takes 20 s")
async def test_a_row_that_ends_the_servers_process_is_rejected_alone(
    tmp_path: Path, urls: Urls
) -> None:
    found = await ask(tmp_path, await urls("gunicorn") + "/predictions/die-99-5-http")
    hold_rejected(found, "unavailable", "")


@with_each(
    "go", 401, 402, 403, 404, 405, 407, 410, 411, 414, 417, 426, 428, 431, 451, 494, 498, 501, 505,
    others=(401, 403, 404, 405, 431, 501, 505),
)  # fmt: skip
async def test_a_wrong_setting_ends_the_work(
    tmp_path: Path, urls: Urls, server: str, status: int
) -> None:
    with pytest.raises(PenstockError, match=rf"/{status}-.*answered {status}.*model\.(url|token)"):
        await ask(tmp_path, f"{await urls(server)}/predictions/{status}-99-any-http")


# What each framework says in its own words.


@pytest.mark.parametrize(
    ("server", "path", "text"),
    [
        ("uvicorn", "/slash", "answered 307.*redirects to http.*/slash/,"),
        ("gunicorn", "/slash", "answered 308.*redirects to http.*/slash/,"),
        ("go", "/slash", "answered 307.*redirects to http.*/slash/,"),
        ("uvicorn", "/none", "answered 404: Not Found; check model.url"),
        ("go", "/get", "answered 405: Method Not Allowed.*; check model.url"),
    ],
)
async def test_an_address_that_is_not_the_models_ends_the_work(
    tmp_path: Path, urls: Urls, server: str, path: str, text: str
) -> None:
    with pytest.raises(PenstockError, match=text):
        await ask(tmp_path, await urls(server) + path)


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("uvicorn", "/typed"),
        ("uvicorn", "/stream"),  # in pieces, with 207
        ("gunicorn", "/parsed"),  # with 201
        ("gunicorn", "/small"),  # not more than 20 bytes
        ("go", "/small"),
    ],
)
async def test_each_way_of_a_framework_to_answer_is_read(
    tmp_path: Path, urls: Urls, server: str, path: str
) -> None:
    assert await ask(tmp_path, await urls(server) + path) == (DOUBLED, [])


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/huge", "result_too_large", "more than 4194304 bytes (limits.answer_bytes_per_row"),
        ("/short", "model_mismatch", ""),
    ],
)
async def test_a_row_without_an_answer_of_its_own_is_rejected_alone(
    tmp_path: Path, urls: Urls, path: str, code: str, text: str
) -> None:
    hold_rejected(await ask(tmp_path, await urls("uvicorn") + path), code, text)


@each(MODELS)
async def test_three_megabytes_are_made_smaller_even_if_the_server_does_not_read_them(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    found = await ask(tmp_path, await urls(server) + "/large", text=LONG)
    assert found == (DOUBLED, [])


@each(MODELS)
@pytest.mark.parametrize("status", [500, 502, 503, 507])
async def test_called_as_torchserve_an_ill_server_is_waited_for(
    tmp_path: Path, urls: Urls, server: str, status: int
) -> None:
    url = f"{await urls(server)}/predictions/{status}-2-any-torchserve"
    assert await ask(tmp_path, url, "torchserve") == (DOUBLED, [])


@each(MODELS)
async def test_called_as_torchserve_a_refused_row_is_rejected_alone(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    url = await urls(server) + "/predictions/422-99-5-torchserve"
    hold_rejected(await ask(tmp_path, url, "torchserve"), "model_rejected", "422")


# Behind a proxy.


@each(PROXIES)
@pytest.mark.parametrize("mood", ["hangup", "half", "slow", "500", "502", "503", "504"])
async def test_an_ill_model_behind_a_proxy_is_waited_for(
    tmp_path: Path, urls: Urls, upstream: Upstream, server: str, mood: str
) -> None:
    """The proxy answers 502, 503 or 504 in the model's place, or breaks its answer off."""
    path = f"/m/{mood}/2"
    assert await ask(tmp_path, await urls(server) + path) == (DOUBLED, [])
    assert upstream.asked[path] >= 3


@each(PROXIES)
@pytest.mark.parametrize("mood", ["packed", "201"])
async def test_answers_of_a_model_behind_a_proxy_are_read(
    tmp_path: Path, urls: Urls, upstream: Upstream, server: str, mood: str
) -> None:
    assert await ask(tmp_path, f"{await urls(server)}/m/{mood}/99") == (DOUBLED, [])


@each(PROXIES)
@pytest.mark.usefixtures("upstream")
async def test_requests_that_are_too_large_for_a_proxy_are_made_smaller(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    assert await ask(tmp_path, await urls(server) + "/small/200/0") == (DOUBLED, [])


@each(PROXIES)
@pytest.mark.usefixtures("upstream")
async def test_three_megabytes_are_made_smaller_even_if_the_proxy_does_not_read_them(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    found = await ask(tmp_path, await urls(server) + "/large/200/0", text=LONG)
    assert found == (DOUBLED, [])


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("nginx", "/once"),  # each connection is closed after one answer
        ("nginx", "/limited"),  # 20 requests a second, others get 503
        ("envoy", "/busy"),  # one request at a time, others get 503
    ],
)
@pytest.mark.usefixtures("upstream")
async def test_many_requests_are_answered_though_a_proxy_bounds_them(
    tmp_path: Path, urls: Urls, server: str, path: str
) -> None:
    found = await ask(tmp_path, f"{await urls(server)}{path}/200/0", most_rows=1)
    assert found == (DOUBLED, [])


@each(PROXIES, "nginx")
async def test_a_page_in_place_of_answers_is_a_refusal(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    found = await ask(tmp_path, await urls(server) + "/page/200/0")
    assert found.predictions == []
    assert {one.error.code for one in found.rejected if one.error} == {"model_rejected"}
    assert all(one.error and "is not JSON" in one.error.message for one in found.rejected)


@pytest.mark.parametrize(
    ("server", "path"), [("gunicorn", "/small"), ("go", "/small"), ("nginx", "/small/200/0")]
)
@pytest.mark.usefixtures("upstream")
async def test_a_row_that_is_too_large_by_itself_is_told_so(
    tmp_path: Path, urls: Urls, server: str, path: str
) -> None:
    found = await ask(tmp_path, await urls(server) + path, text="x" * 30)
    assert [one.error.code for one in found.rejected if one.error] == ["too_large"] * len(ROWS)


@pytest.mark.parametrize(
    ("server", "path", "text"),
    [
        *(
            (one, "/moved", r"answered 308.*redirects to https://model\.example/")
            for one in PROXIES
        ),
        *((one, "/none", "answered 404.*check model.url") for one in PROXIES),
        *((one, "/token", "answered 401.*model.token") for one in PROXIES if one != "envoy"),
    ],
)
@pytest.mark.usefixtures("upstream")
async def test_what_a_proxy_forbids_ends_the_work(
    tmp_path: Path, urls: Urls, server: str, path: str, text: str
) -> None:
    with pytest.raises(PenstockError, match=text):
        await ask(tmp_path, f"{await urls(server)}{path}/200/0")


@pytest.mark.parametrize(
    ("server", "path", "text"),
    [
        ("nginx", "/away/200/0", "answered 502: .*Bad Gateway"),
        ("haproxy", "/away/200/0", "answered 503: .*No server is available"),
        ("caddy", "/away/200/0", "answered 502"),
        (
            "envoy",
            "/away/200/0",
            "answered 503: upstream connect error or disconnect/reset before headers",
        ),
        ("envoy", "/nobody/200/0", "answered 503: no healthy upstream"),
        ("nginx", "/m/slow/9", "answered 504: .*Gateway Time-out"),
        ("haproxy", "/m/slow/9", "answered 504: .*didn't respond in time"),
        ("caddy", "/m/slow/9", "answered 504"),
        ("envoy", "/m/slow/9", "answered 504: upstream request timeout"),
        ("nginx", "/gone/200/0", "hung up"),
        ("haproxy", "/gone/200/0", "no answer within"),
    ],
)
@pytest.mark.usefixtures("upstream")
async def test_a_model_that_is_away_behind_a_proxy_is_no_refusal(
    urls: Urls, server: str, path: str, text: str
) -> None:
    settings = {"url": await urls(server) + path, "timeout_ms": 1_000}
    model = JsonModel(msgspec.convert(settings, config.Model))
    try:
        with pytest.raises(Transient, match=text):
            await model.predict([JsonRows.of([b"[1]"])])
    finally:
        await model.aclose()
