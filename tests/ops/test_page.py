"""The page in a browser: its first line, its parts, and what may be done on it."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from prometheus_client import CollectorRegistry

from penstock import config
from penstock.core.diagnosis.diagnose import diagnose, with_diagnosis
from penstock.ops.http_server import as_json
from penstock.ops.page.page import ALIVE, MOST_VIEWERS, Page, PageSource, Picture, Probe
from tests.support.axe import axe, findings
from tests.support.chromium import Browser, Tab, chromium
from tests.support.status_documents import document, letter, stopped, stream
from tests.support.troubles import TROUBLES, troubled
from tests.support.waiting import DEADLINE_S

# One browser for all of them.
pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "</script><img src=x onerror=alert(1)>"
ASKED = ["/api/redrive", "/api/line"]
TOKEN = "open sesame"
# One black pixel.
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAAAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==")


def diagnosed(status: dict[str, Any]) -> dict[str, Any]:
    """Of a worker, or of a supervisor."""
    if "processes" not in status:
        return with_diagnosis(status, diagnose(status))
    members = [diagnosed(process) if process["up"] else process for process in status["processes"]]
    whole = status | {"processes": members}
    return whole | {"problems": [one._asdict() for one in diagnose(whole)]}


class Worker(PageSource):
    """What a page shows, as long as a test has not changed it; and what it was asked to do."""

    def __init__(self, status: dict[str, Any], *actions: str) -> None:
        self.shown = status
        self.actions = actions
        self.group: dict[str, Any] | None = None
        self.peers: dict[str, Any] | None = None
        self.kept: list[dict[str, Any]] | None = None
        self.made = 0
        self.asked: list[tuple[str, Any]] = []

    async def ready(self) -> Probe:
        return ALIVE

    async def metrics(self) -> CollectorRegistry:
        return CollectorRegistry()

    async def status(self) -> dict[str, Any]:
        self.made += 1
        return diagnosed(self.shown)

    async def samples(self) -> list[dict[str, Any]]:
        return self.kept or []

    async def picture(self, numbers: Sequence[int]) -> Picture:
        return Picture("image/gif", GIF)

    def look(self) -> dict[str, Any]:
        return {"group": self.group, "peers": self.peers}

    async def act(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, await request.json()))
        return as_json({"ok": True, "said": "1 dead letter: bad_row 1\nwould send 1 of them back"})

    @asynccontextmanager
    async def served(self, token: str | None = None) -> AsyncIterator[str]:
        http = config.Http(port=0, token=token, samples=self.kept is not None)
        acts = dict.fromkeys(self.actions, self.act)
        async with Page(http, self, around=self, actions=acts).open() as url:
            yield url


@asynccontextmanager
async def opened(
    browser: Browser, worker: Worker, token: str | None = None, width: int = 1440
) -> AsyncIterator[Tab]:
    """A tab that shows the page of this worker."""
    async with worker.served(token) as url, browser.tab() as tab:
        await tab.open(f"{url}/#token={token}" if token else url, width=width)
        await tab.until("document.querySelector('#verdict .first')")
        yield tab


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


async def test_the_first_line_names_each_planted_cause_and_no_other_line_does(
    browser: Browser,
) -> None:
    worker = Worker(document())
    async with opened(browser, worker) as tab:
        assert await tab.text("#verdict .first") == "All is well"
        assert (await tab.run("document.getElementById('verdict').className")) == "good"
        for cause, trouble in TROUBLES.items():
            worker.shown = troubled(cause)
            first = "document.querySelector('#verdict .first').innerText"
            await tab.until(f"{first}.startsWith({json.dumps(trouble.line)})")
            assert await tab.text("#verdict .first + p"), cause
            assert await tab.run("document.querySelectorAll('#verdict li').length") == 0
            assert await tab.run("document.title") != "penstock"
            # It is read out, too.
            assert trouble.line.lower()[:20] in (await tab.run("$('spoken').textContent")).lower()
        assert tab.complaints == []


async def test_latencies_of_a_start_or_an_outage_do_not_stand_beside_the_bound(
    browser: Browser,
) -> None:
    whole = document()
    worker = Worker(whole | {"flow": whole["flow"] | {"p99_ms": 12_400.0}})
    async with opened(browser, worker) as tab:
        assert "rows a second of 12 streams" in await tab.text("#verdict")
        assert "p99" not in await tab.text("#verdict")
        worker.shown = whole
        await tab.until("$('verdict').innerText.includes('the bound is 50 ms')")


async def test_a_figure_has_a_colour_only_if_the_first_lines_say_why(browser: Browser) -> None:
    whole = document()
    # More than the bound, and many rejections since the start; neither is trouble now.
    whole |= {"flow": whole["flow"] | {"p99_ms": 61.0}}
    whole["counters"]["rejected"] = 90
    worker = Worker(whole)
    parts = "#cards .bad, #cards .warn, #streams .bad, #streams .warn"
    coloured = f"document.querySelectorAll('{parts}').length"
    async with opened(browser, worker) as tab:
        assert await tab.run(coloured) == 0
        worker.shown = troubled("model too slow")
        await tab.until(f"{coloured} > 1")


async def test_every_part_is_shown_and_nothing_sticks_out_of_a_telephone(browser: Browser) -> None:
    worker = Worker(document(streams=200, partitions=4))
    other = {"committed": 900, "end": 1_000, "owner": "penstock-1234abcd", "host": "10.0.0.5"}
    worker.group = {
        "age_s": 1.0, "why": None,
        "partitions": [{"topic": "refs", "partition": number, **other} for number in range(6)],
    }  # fmt: skip
    worker.shown["streams_others"] = stream("*others*", partition=None)
    worker.shown["streams"][1]["stream"] = (
        "plant-of-the-north/building-7/line-12/site-1/camera-0017"
    )
    async with opened(browser, worker) as tab:
        assert (await tab.text("#cards")).startswith("latency, p99\n31 ms\np50 17 ms; bound 50 ms")
        assert "model\n75 %\n3 of 4 calls, 9 ms each" in await tab.text("#flow")
        assert "mean 25.5 ms an object; the dashed line is the bound" in await tab.text("#way")
        assert "oldest waited enough" in await tab.text("#batches")
        assert (await tab.run("document.querySelectorAll('#streams tbody tr').length")) == 21
        assert "all others: 180" in await tab.text("#streams")
        assert "0.2 ms, 8 %" in await tab.text("#streams")
        partitions = await tab.text("#partitions")
        assert partitions.count("this worker") == 4
        assert partitions.count("10.0.0.5 1234abcd\t100") == 2
        assert re.search(r"rows 1.0\s+answers\s+3 of 4", await tab.text("#models"))
        for width in (400, 800, 1200, 1440, 3840):
            await tab.size(width)
            # No column is cut off on a screen of usual width, however long the names are.
            table = "$('streams').querySelector('.scroll')"
            cut_off = await tab.run(f"{table}.scrollWidth - {table}.clientWidth")
            assert cut_off <= 0 or width < 1200
            assert await tab.run("document.documentElement.scrollWidth") <= width
            # The columns beside a name leave it room: no letter has a line of its own.
            assert await tab.run("$('streams').querySelector('tbody th').offsetWidth") > 100
        # Where there is none, the table scrolls sideways, and stays there when it is drawn again.
        await tab.size(800)
        scrolled = "$('streams').querySelector('.scroll').scrollLeft"
        await tab.run(f"{scrolled} = 50")
        worker.shown["streams"][0]["p50_ms"] += 1_000.0
        await tab.until("$('streams').innerText.includes('1.0 s')")
        assert await tab.run(scrolled) == 50
        await tab.run("$('wanted').value = 'cam-17'; $('wanted').dispatchEvent(new Event('input'))")
        assert (await tab.run("document.querySelectorAll('#streams tbody tr').length")) == 1
        assert tab.complaints == []


@pytest.mark.parametrize("dark", [False, True])
async def test_people_with_a_keyboard_or_a_screen_reader_can_use_it(
    browser: Browser, dark: bool
) -> None:
    script = axe()
    away = {"outages": [{"service": "model server", "away_s": 12.0, "why": "refused"}]}
    worker = Worker(document(), *ASKED)
    async with opened(browser, worker, TOKEN) as tab:
        if dark:
            await tab.dark()
        assert await findings(tab, script) == []
        worker.shown = troubled("stopped line") | away | {"letters": [letter("cam-7")]}
        await tab.until("document.querySelectorAll('#verdict li').length === 2")
        for width in (1440, 400):
            await tab.size(width)
            assert await findings(tab, script) == []


async def test_names_of_the_world_stay_texts(browser: Browser) -> None:
    worker = Worker(
        document()
        | {
            "assignments": [stopped(HOSTILE)],
            "streams": [stream(HOSTILE, stopped=True, last_message=HOSTILE)],
            "letters": [letter(HOSTILE) | {"message": HOSTILE}],
        }
    )
    async with opened(browser, worker) as tab:
        for part in ("#verdict", "#stopped", "#streams", "#letters"):
            assert HOSTILE in await tab.text(part), part
        assert await tab.run("document.images.length") == 0
        assert tab.complaints == []


async def test_without_a_token_there_is_no_button_and_the_commands_are_told(
    browser: Browser,
) -> None:
    worker = Worker(document() | {"assignments": [stopped("cam-7")], "letters": [letter("cam-7")]})
    async with opened(browser, worker) as tab:
        assert await tab.run("[...document.querySelectorAll('button')].filter(one => "
                             "one.offsetParent).length") == 0  # fmt: skip
        assert "penstock dlq resume cam-7" in await tab.text("#stopped")
        assert "With http.token set they can be sent back" in await tab.text("#letters-panel")


async def test_letters_are_counted_before_they_are_sent_back(browser: Browser) -> None:
    worker = Worker(document() | {"letters": [letter("cam-7", 4)]}, *ASKED)
    worker.shown["rejected"] = {"bad_row": 1}
    async with opened(browser, worker, TOKEN) as tab:
        assert await tab.run("$('send').disabled")
        await tab.run("document.querySelector('#letters button').click()")
        await tab.until("!$('send').disabled")
        assert "would send 1 of them back" in await tab.text("#redriven")
        await tab.run("$('send').click()")
        await tab.until("$('send').disabled && $('redriven').className === ''")
        # Another choice is to be counted again: of all streams, as a glob.
        await tab.run("$('stream').value = 'cam-*'; $('stream').dispatchEvent("
                      "new Event('input', { bubbles: true }))")  # fmt: skip
        await tab.run("$('redrive').requestSubmit()")
        await tab.until("!$('send').disabled")
    one = {"code": "bad_row", "stream": "cam-7", "at_ms": letter("")["at_ms"], "latest": False}
    many = {"code": "bad_row", "stream": "cam-*", "glob": True, "since": "15m", "latest": False}
    assert worker.asked == [
        ("/api/redrive", one | {"dry": True}),
        ("/api/redrive", one | {"dry": False}),
        ("/api/redrive", many | {"dry": True}),
    ]


async def test_a_stopped_line_goes_on_and_a_skip_is_asked_twice(browser: Browser) -> None:
    worker = Worker(document() | {"assignments": [stopped("cam-7")]}, *ASKED)
    async with opened(browser, worker, TOKEN) as tab:
        go_on, skip = (f"document.querySelectorAll('#stopped button')[{at}]" for at in (0, 1))
        await tab.run(f"{go_on}.click()")
        await tab.until(
            "document.querySelector('#stopped output').textContent.startsWith('1 dead')"
        )
        # The first click sends nothing, as is seen below; it is forgotten after some seconds.
        await tab.run(f"{skip}.click(); {skip}.click()")
        await tab.until(
            "document.querySelector('#stopped output').textContent.startsWith('1 dead')"
        )
        # What has the focus keeps it when the data changes.
        await tab.run(f"{go_on}.focus()")
        worker.shown = document() | {"assignments": [stopped("cam-7"), stopped("cam-9")]}
        await tab.until("document.querySelectorAll('#stopped .stop').length === 2")
        assert await tab.run("document.activeElement.innerText") == "Go on at this object"
    asked = [("/api/line", {"verb": verb, "stream": "cam-7"}) for verb in ("resume", "skip")]
    assert worker.asked == asked


async def test_the_page_asks_for_the_token_and_keeps_it_out_of_the_address(
    browser: Browser,
) -> None:
    worker = Worker(document())
    async with worker.served(TOKEN) as url, browser.tab() as tab:
        await tab.open(url)
        await tab.until("!$('ask').hidden")
        assert await tab.text("#main") == ""
        # Nothing was refused, as nothing was asked for.
        assert tab.complaints == []
        for token in ("wrong", TOKEN):
            await tab.run(f"$('token').value = '{token}'; $('ask').requestSubmit()")
            await tab.until("$('state').textContent")
        await tab.until("document.querySelector('#verdict .first')")
    async with worker.served(TOKEN) as url, browser.tab() as tab:
        await tab.open(url)
        await tab.until("!$('ask').hidden")
        await tab.run(f"location.hash = {json.dumps('#token=' + TOKEN)}")
        await tab.until("document.querySelector('#verdict .first')")
        assert "token" not in await tab.run("location.href")
    async with worker.served(TOKEN) as url, browser.tab() as tab:
        await tab.open(f"{url}/#token={TOKEN}")
        await tab.until("document.querySelector('#verdict .first')")
        assert "token" not in await tab.run("location.href")


async def test_a_worker_that_is_gone_is_the_first_line_until_it_is_back(browser: Browser) -> None:
    worker = Worker(document())
    async with browser.tab() as tab:
        async with worker.served() as url:
            await tab.open(url)
            await tab.until("document.querySelector('#verdict .first')")
        await tab.until("document.querySelector('#verdict.bad .first')")
        assert "has not answered for" in await tab.text("#verdict .first")


async def test_of_several_processes_one_is_shown_and_may_be_chosen(browser: Browser) -> None:
    first, second = document(), document(streams=3)
    worker = Worker(
        {
            "v": 1,
            "processes": [
                {"process": 0, "restarts": 0, "up": True, **first},
                {"process": 1, "restarts": 2, "up": True, **second},
                {"process": 2, "restarts": 0, "up": False, "error": "it does not run"},
            ],
        }
    )
    async with opened(browser, worker) as tab:
        assert await tab.text("#verdict .first") == "Process 2: it does not run"
        assert "process 1, started again 2 times" in await tab.text("#processes")
        rows = "document.querySelectorAll('#streams tbody tr').length"
        assert await tab.run(rows) == 12
        await tab.run("document.querySelectorAll('#processes button')[1].click()")
        assert await tab.run(rows) == 3


def sample(number: int, stream: str, **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "at_ms": 1_795_208_217_412, "stream": stream, "model": "rows",
        "topic": "refs", "partition": 0, "offset": 7, "object": "plant/a.csv", "row": 3,
        "input": "1.5, 2", "prediction": '{"label": 1}', "error": None, "picture": None, **changes,
    }  # fmt: skip


async def test_rows_are_shown_beside_their_predictions_and_pictures_as_pictures(
    browser: Browser,
) -> None:
    worker = Worker(document())
    worker.kept = [
        sample(3, HOSTILE, input=HOSTILE, prediction=HOSTILE),
        sample(2, "cam-2", prediction=None, error="null in row"),
        sample(1, "cam-1", input="43 bytes", picture="1"),
    ]
    async with opened(browser, worker, TOKEN) as tab:
        await tab.until("document.querySelectorAll('.samples li').length === 3")
        text = await tab.text("#samples")
        assert text.count(HOSTILE) == 3
        assert "null in row" in text
        # It was read with the token in a header, and the browser could show it.
        await tab.until("document.images.length === 1 && document.images[0].naturalWidth === 1")
        assert await findings(tab, axe()) == []
        await tab.run("$('wanted').value = 'cam-2'; $('wanted').dispatchEvent(new Event('input'))")
        await tab.until("document.querySelectorAll('.samples li').length === 1")
        for width in (400, 1440):
            await tab.size(width)
            assert await tab.run("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []


async def test_members_of_the_group_are_shown_with_their_first_line_and_a_silent_one_by_name(
    browser: Browser,
) -> None:
    worker = Worker(document() | {"host": "worker-0", "pid": 1})
    well = {
        "peer": "10.0.0.5:8900", "why": None, "host": "worker-0", "pids": [1], "partitions": 4,
        "lag": 0, "backlog_s": 0.1, "rows_per_s": 3_840.0, "p99_ms": 31.0, "level": None,
        "first": None,
    }  # fmt: skip
    late = {**well, "peer": "10.0.0.6:8900", "host": "worker-1", "level": "bad", "first": HOSTILE}
    silent = {"peer": "10.0.0.7:8900", "why": "no answer within 2 s"}
    worker.peers = {"age_s": 1.0, "members": [well, late, silent], "left_out": 0}
    async with opened(browser, worker) as tab:
        lines = (await tab.text("#peers tbody")).split("\n")
        assert lines[0].startswith("worker-0 10.0.0.5:8900 this one")
        assert lines[0].endswith("all is well")
        assert HOSTILE in lines[1]
        assert "this one" not in lines[1]
        assert lines[2].startswith("10.0.0.7:8900")
        assert lines[2].endswith("silent: no answer within 2 s")
        assert await findings(tab, axe()) == []
        for width in (400, 1440):
            await tab.size(width)
            assert await tab.run("document.documentElement.scrollWidth") <= width
        assert tab.complaints == []


async def test_who_asks_for_the_head_of_the_updates_gets_no_body_and_takes_no_place() -> None:
    worker = Worker(document())
    async with worker.served() as url, aiohttp.ClientSession() as session:
        for _ in range(MOST_VIEWERS):
            async with session.head(f"{url}/api/live") as answer:
                assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
        assert worker.made == 0
        async with session.get(f"{url}/api/live") as answer:
            assert await answer.content.readuntil(b"\n")


async def test_an_update_is_made_once_for_all_viewers_and_none_without_one() -> None:
    worker = Worker(document())
    assert worker.made == 0

    async def viewer(url: str, updates: int) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/live") as answer:
            assert answer.content_type == "application/x-ndjson"
            for _ in range(updates):
                assert await answer.content.readuntil(b"\n")

    async with worker.served() as url:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as viewers:
            for _ in range(10):
                viewers.create_task(viewer(url, 3))
        # On a busy machine some begin later than others.
        assert 3 <= worker.made < 10
