"""What `penstock top` shows of a worker's page, and what it says where there is none."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from penstock import config
from penstock.adapters.http import running_worker
from penstock.adapters.http.running_worker import page_of, status_of
from penstock.commands.top import status_now
from penstock.errors import Fatal, Unreachable
from penstock.ops.http_server import as_json, serving
from penstock.ops.top_table import render

STREAM = {
    "stream": "site-1/\x1b[2Jcam-3",
    "objects_per_s": 20.0,
    "rows_per_s": 160.0,
    "p50_ms": 9.5,
    "p99_ms": 41.25,
    "age_s": 4.2,
    "owed": 84,
    "rejected": 3,
    "last_code": "bad_row",
    "last_message": "'oops' is not a number",
    "stopped": False,
    "state": "held back by site-1/cam-7",
    "level": "warn",
    "heard_s": 0.2,
}
FLOW = {
    "arrived_per_s": 20.0,
    "delivered_per_s": 18.0,
    "p50_ms": 9.5,
    "p99_ms": 41.25,
    "backlog_s": 4.2,
    "utilisation": 0.5,
    "bound_by": "model",
}
WORKER = {"host": "cams-0", "flow": FLOW, "streams": [STREAM], "assignments": [{}, {}]}
PROBLEM = {"level": "bad", "what": "cam-3 is 4.2 s behind", "do": "look at its objects"}


def lines(document: Mapping[str, Any], width: int = 200) -> list[str]:
    page = io.StringIO()
    Console(width=width, file=page).print(render(document))
    return [line.rstrip() for line in page.getvalue().splitlines()]


def test_causes_come_first_then_the_worker_then_its_streams() -> None:
    cause, _, worker, _, _, stream = lines({**WORKER, "problems": [PROBLEM]})
    assert cause == "cam-3 is 4.2 s behind. look at its objects"
    assert worker.split() == [
        "cams-0",
        "20.0",
        "18.0",
        "9.5",
        "41.2",
        "4.2",
        "50",
        "%",
        "model",
        "2",
    ]
    assert "held back by site-1/cam-7" in stream
    assert stream.split()[5:13] == ["20.0", "160.0", "9.5", "41.2", "4.2", "0.2", "84", "3"]
    assert stream.endswith("bad_row 'oops' is not a number")
    assert "\x1b" not in stream


def test_on_a_terminal_of_80_columns_each_stream_has_one_line() -> None:
    many = [STREAM | {"stream": f"plant-of-the-north/line-{n}/camera"} for n in range(5)]
    table = lines({**WORKER, "streams": many, "problems": []}, width=80)[3:]
    assert len(table) == 2 + len(many)
    assert all(len(line) <= 80 for line in table)
    assert table[1].split() == ["stream", "state", "p99", "ms", "age", "s", "heard", "s", "owed"]
    assert all(line.endswith("41.2    4.2      0.2    84") for line in table[2:])


def test_the_reads_of_the_fullest_store_are_shown_with_what_holds_them() -> None:
    near = {"name": "objects", "in_flight": 3, "limit": 16, "held_by": "arrivals"}
    far = {"name": "far", "in_flight": 63, "limit": 64, "held_by": "machine"}
    worker = lines({**WORKER, "problems": [], "stores": [near, far]})[2]
    assert "63/64 machine" in worker


def test_all_is_well_and_nothing_moves_yet() -> None:
    assert lines({"host": "cams-0", "flow": None, "problems": []})[0] == "all is well"


def test_members_of_one_page_have_a_line_each() -> None:
    silent = {"process": 1, "error": "it does not answer"}
    document = {"problems": [], "processes": [{**WORKER, "process": 0}, silent]}
    _, _, first, second, *_ = lines(document)
    assert first.split()[0] == "0"
    assert second.split() == ["1", "it", "does", "not", "answer"]


def test_what_streams_cost_is_shown_by_their_share_with_the_others_and_the_sum() -> None:
    cheap = {
        "row_ms": 0.0125, "model_s": 1.25, "model_share": 0.05, "cost_per_hour": 0.06,
        "cost_per_million": 0.5,
    }  # fmt: skip
    dear = cheap | {"row_ms": 1500.0, "model_share": 0.9, "cost_per_million": 1234.5}
    others = {"stream": "*others*", "model_share": 0.05, "rows_per_s": 9.0}
    whole = {"call_ms": 4.0, "busy_s": 0.75, "cost_per_hour": 1.2, "cost_per_million": 60.0}
    document = {
        **WORKER,
        "problems": [],
        "streams": [STREAM | cheap, STREAM | dear | {"stream": "cam-2"}],
        "streams_others": others,
        "costs": whole,
    }
    page = io.StringIO()
    Console(width=120, file=page).print(render(document, cost=True))
    first, second, third, last = [line.split() for line in page.getvalue().splitlines()[-4:]]
    assert first == ["cam-2", "90.0", "%", "1,500.0", "1.25", "160.0", "0.06", "1,234.5"]
    assert second[1:] == ["5.0", "%", "0.0125", "1.25", "160.0", "0.06", "0.5"]
    assert third == ["*others*", "5.0", "%", "9"]
    assert last == ["all", "0.75", "calls", "4", "a", "call", "1.2", "60"]


async def test_the_page_is_asked_with_its_token() -> None:
    async def status(_: web.Request) -> web.Response:
        return as_json({**WORKER, "problems": []})

    async with serving(config.Http(port=0, token="t"), {"/api/status": status}) as url:
        http = config.Http(host="127.0.0.1", port=int(url.rpartition(":")[2]), token="t")
        found = await status_of(http)
        assert found is not None
        assert found["host"] == "cams-0"
        with pytest.raises(Fatal, match=r"http\.token"):
            await status_of(config.Http(host=http.host, port=http.port, token="other"))


async def test_an_answer_without_end_is_read_no_further() -> None:
    """Whatever listens at that port."""
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(bytes(1 << 20))
            sent += 1

    async with serving(config.Http(port=0), {"/api/status": endless, "/": endless}) as url:
        http = config.Http(host="127.0.0.1", port=int(url.rpartition(":")[2]))
        assert await status_of(http) is None
        assert await page_of(http, "/", 60.0) is None
    assert sent <= 2 * (running_worker.MOST_BYTES // (1 << 20) + 16)  # with what sockets hold


async def test_where_no_worker_answers_it_says_what_to_start() -> None:
    with pytest.raises(Unreachable, match="penstock run"):
        await status_now(config.Http(port=1))
