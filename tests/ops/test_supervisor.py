"""Several workers as one: their page, their restarts, and that none is ever left behind."""

import asyncio
import logging
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import config
from penstock.core.health.retries import Backoff
from penstock.errors import EXIT_FATAL, EXIT_USAGE, Fatal
from penstock.ops.supervisor import MemberTerms, supervise
from penstock.process.process_end import RESERVE
from tests.support.gone import is_gone
from tests.support.waiting import until
from tests.support.warm_start import STUB
from tests.support.worker import own_port

AT_ONCE = Backoff(first_s=0.0, most_s=0.0)
NEVER = Backoff(first_s=1e6, most_s=1e6)
LONG_S = 60.0


class Supervised:
    """Stub workers under a supervisor; made by `supervised`."""

    def __init__(self, http: config.Http, stop: asyncio.Event, folder: Path) -> None:
        self.http = http
        self.stop = stop
        self.ended: asyncio.Task[int]
        self.freed: list[str] = []
        self._folder = folder

    async def free(self, place: str) -> None:
        self.freed.append(place)

    async def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Status 0 while there is no page."""
        headers = {"Authorization": f"Bearer {token or self.http.token}"}
        url = f"http://127.0.0.1:{self.http.port}{path}"
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(url) as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def samples(self) -> dict[str, dict[str, float]]:
        """By name and `process`, of metrics without other labels."""
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families((await self.get("/metrics"))[1]):
            for sample in family.samples:
                if sample.labels.keys() == {"process"}:
                    found.setdefault(sample.name, {})[sample.labels["process"]] = sample.value
        return found

    async def pids(self, accepted: Callable[[dict[str, int]], bool] = bool) -> dict[str, int]:
        """The process ids by number, when all answer and they are as wanted."""
        pids: dict[str, int] = {}

        async def all_answer() -> bool:
            nonlocal pids
            if self.ended.done():
                raise AssertionError(f"all ended: {self.ended}")
            samples = await self.samples()
            pids = {process: int(pid) for process, pid in samples.get("stub_pid", {}).items()}
            return set(samples.get("penstock_process_up", {}).values()) == {1} and accepted(pids)

        await until(all_answer, lambda: f"the pages of all; there are {pids}")
        return pids

    async def until_says(self, path: str, wanted: tuple[int, str]) -> None:
        """A member that does not answer within two seconds is told as away."""
        said = (0, "")

        async def says() -> bool:
            nonlocal said
            said = await self.get(path)
            return said == wanted

        await until(says, lambda: f"{wanted} of {path}; it is {said}")

    async def until_tells(self, wanted: dict[str, Any]) -> None:
        """As JSON."""
        said = ""

        async def tells() -> bool:
            nonlocal said
            _, said = await self.get("/api/status")
            document: dict[str, Any] = orjson.loads(said)
            return document == wanted

        await until(tells, lambda: f"{wanted}; it is {said}")

    @property
    def drained(self) -> set[int]:
        return {int(path.name.removeprefix("drained-")) for path in self._folder.glob("drained-*")}

    @property
    def places(self) -> dict[int, str]:
        """By process id."""
        found = self._folder.glob("place-*")
        return {int(path.name.removeprefix("place-")): path.read_text() for path in found}


@asynccontextmanager
async def supervised(
    folder: Path,
    *arguments: str,
    count: int = 2,
    token: str | None = None,
    stop_s: float = LONG_S,
    backoff: Backoff = AT_ONCE,
    reserve: bool = False,
    frees_first: bool = False,
    is_job: bool = False,
) -> AsyncIterator[Supervised]:
    command = [*STUB, str(folder), *arguments]
    group = Supervised(config.Http(port=own_port(), token=token), asyncio.Event(), folder)
    terms = MemberTerms(command, "pod-7", group.free, stop_s, backoff, frees_first, is_job)
    waiting = [*command, RESERVE] if reserve else None
    work = supervise(group.http, terms, count, group.stop, reserve=waiting)
    async with asyncio.TaskGroup() as tasks:
        group.ended = tasks.create_task(work)
        try:
            yield group
        finally:
            group.stop.set()


async def test_all_members_are_told_on_one_page_and_end_together(tmp_path: Path) -> None:
    async with supervised(tmp_path, count=3) as group:
        pids = await group.pids()
        assert pids.keys() == {"0", "1", "2"}
        await group.until_says("/healthz", (200, "ok\n"))
        lines = [f"process {number}: ready: 2 partitions\n" for number in range(3)]
        await group.until_says("/readyz", (200, "".join(lines)))
        group.stop.set()
        assert await group.ended == 0
    assert group.drained == set(pids.values())
    assert all(map(is_gone, pids.values()))


async def test_the_members_metrics_are_one_exposition_with_their_numbers(tmp_path: Path) -> None:
    async with supervised(tmp_path) as group:
        await group.pids()
        page = ""

        async def both_are_on_it() -> bool:
            nonlocal page
            _, page = await group.get("/metrics")
            return page.count("stub_pid{") == 2

        await until(both_are_on_it, lambda: page)
    lines = page.splitlines()
    heads = [line.split()[1:3] for line in lines if line.startswith("#")]
    assert len(heads) == len({tuple(head) for head in heads})
    assert lines.count("# HELP stub_rows_total Rows\\nof all") == 1
    assert lines.count("# TYPE stub_rows_total counter") == 1
    for process in "01":
        assert f'stub_rows_total{{process="{process}"}} 5.0' in lines
        bucket = f'stub_wait_bucket{{le="+Inf",process="{process}",why="\\"b\\\\"}} 1.0'
        assert bucket in lines


async def test_the_members_status_is_one_document_and_people_get_one_page(tmp_path: Path) -> None:
    async with supervised(tmp_path, backoff=NEVER) as group:
        pids = await group.pids()
        status = {"restarts": 0, "up": True, "v": 1, "input_topic": "refs"}
        await group.until_tells(
            {
                "v": 1,
                "processes": [
                    {"process": number, "pid": pids[str(number)], **status} for number in range(2)
                ],
                "problems": [],
            }
        )
        assert "<title>penstock</title>" in (await group.get("/"))[1]
        os.kill(pids["1"], signal.SIGKILL)
        await group.until_says("/healthz", (503, "process 1: it does not run\n"))
        away = {"process": 1, "restarts": 0, "up": False, "error": "it does not run"}
        seen: dict[str, Any] = {}

        async def one_is_up() -> bool:
            nonlocal seen
            seen = orjson.loads((await group.get("/api/status"))[1])
            return bool(seen["processes"][0]["up"])

        await until(one_is_up, lambda: f"process 0 is up: {seen}")
        assert seen["processes"][1] == away
        assert [problem["what"] for problem in seen["problems"]] == ["process 1: it does not run"]


async def test_a_killed_member_is_started_again_and_the_other_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised(tmp_path) as group:
        before = await group.pids()
        os.kill(before["1"], signal.SIGKILL)
        after = await group.pids(lambda pids: pids["1"] != before["1"])
        assert after["0"] == before["0"]
        assert (await group.samples())["penstock_process_restarts_total"] == {"0": 0, "1": 1}
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == ["process 1 was ended by SIGKILL; it is started again in 0.0 s"]


async def test_each_member_has_a_place_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    places = {"0": "pod-7-0", "1": "pod-7-1"}
    async with supervised(tmp_path) as group:
        before = await group.pids()
        assert group.places == {before[number]: place for number, place in places.items()}
        os.kill(before["1"], signal.SIGKILL)
        after = await group.pids(lambda pids: pids["1"] != before["1"])
        assert group.places[after["1"]] == "pod-7-1"
        assert group.freed == ["pod-7-1"]


@pytest.mark.parametrize("frees_first", [False, True])
async def test_the_one_in_reserve_takes_the_place_of_a_member_that_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frees_first: bool
) -> None:
    """The others' places are not touched, and what waits in reserve was started before."""
    with caplog.at_level(logging.INFO, logger="penstock"):
        async with supervised(
            tmp_path, backoff=NEVER, reserve=True, frees_first=frees_first
        ) as group:
            before = await group.pids()

            async def is_in_reserve() -> bool:
                return "is in reserve" in caplog.text

            await until(is_in_reserve, lambda: caplog.text)
            (reserve,) = re.findall(r"process (\d+) is in reserve", caplog.text)
            os.kill(before["1"], signal.SIGKILL)
            after = await group.pids(lambda pids: pids["1"] != before["1"])
            assert after == {"0": before["0"], "1": int(reserve)}
            assert group.places[after["1"]] == "pod-7-1"
            assert group.freed == (["pod-7-1"] if frees_first else [])
            # It dies at once: no reserve is spent on it.
            os.kill(after["1"], signal.SIGKILL)
            await group.until_says("/healthz", (503, "process 1: it does not run\n"))
            group.stop.set()
            assert await group.ended == 0
    assert is_gone(int(reserve))
    assert group.freed[-1] == "pod-7-1"


async def test_what_waits_in_reserve_ends_with_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="penstock"):
        async with supervised(tmp_path, reserve=True) as group:
            await group.pids()

            async def is_in_reserve() -> bool:
                return "is in reserve" in caplog.text

            await until(is_in_reserve, lambda: caplog.text)
    (reserve,) = re.findall(r"process (\d+) is in reserve", caplog.text)
    assert is_gone(int(reserve))


async def test_a_job_ends_when_each_member_has_ended_well(tmp_path: Path) -> None:
    async with supervised(tmp_path, is_job=True) as group:
        for pid in (await group.pids()).values():
            os.kill(pid, signal.SIGTERM)
        assert await group.ended == 0
        assert not group.stop.is_set()


async def test_a_member_that_somebody_else_asked_to_end_is_started_again(tmp_path: Path) -> None:
    async with supervised(tmp_path) as group:
        before = await group.pids()
        os.kill(before["0"], signal.SIGTERM)
        await group.pids(lambda pids: pids["0"] != before["0"])
        assert group.drained == {before["0"]}


async def test_while_a_member_is_away_the_whole_is_neither_alive_nor_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def is_known() -> bool:
        return "process 1 was ended by SIGKILL" in caplog.text

    async with supervised(tmp_path, backoff=NEVER) as group:
        os.kill((await group.pids())["1"], signal.SIGKILL)
        await until(is_known, lambda: caplog.text)
        for path in ("/healthz", "/readyz"):
            await group.until_says(path, (503, "process 1: it does not run\n"))
        samples: dict[str, dict[str, float]] = {}

        async def one_is_up() -> bool:
            nonlocal samples
            samples = await group.samples()
            return samples["penstock_process_up"] == {"0": 1, "1": 0}

        await until(one_is_up, lambda: f"process 0 is up: {samples}")
        assert samples["stub_rows_total"] == {"0": 5}
        group.stop.set()  # in the middle of the pause
        assert await group.ended == 0


async def test_a_member_that_gives_up_ends_all_with_its_exit_code(tmp_path: Path) -> None:
    async with supervised(tmp_path) as group:
        pids = await group.pids()
        os.kill(pids["0"], signal.SIGUSR1)
        assert await group.ended == EXIT_FATAL
    assert group.drained == {pids["1"]}


async def test_a_member_that_does_not_drain_in_time_is_killed(tmp_path: Path) -> None:
    async with supervised(tmp_path, "--deaf", stop_s=0.0) as group:
        pids = await group.pids()
        group.stop.set()
        assert await group.ended == 0
    assert all(map(is_gone, pids.values()))


async def test_a_member_without_partitions_does_not_make_the_whole_unready(tmp_path: Path) -> None:
    idle = "no partition is assigned yet\n"
    async with supervised(tmp_path) as group:
        pids = await group.pids()
        os.kill(pids["0"], signal.SIGUSR2)
        ready = f"process 0: {idle}process 1: ready: 2 partitions\n"
        await group.until_says("/readyz", (200, ready))
        os.kill(pids["1"], signal.SIGUSR2)
        await group.until_says("/readyz", (503, f"process 0: {idle}process 1: {idle}"))


async def test_one_member_whose_model_is_away_makes_the_whole_unready(tmp_path: Path) -> None:
    async with supervised(tmp_path) as group:
        os.kill((await group.pids())["1"], signal.SIGHUP)
        await group.until_says("/readyz", (503, "process 1: the model does not answer\n"))
        await group.until_says("/healthz", (200, "ok\n"))


async def test_the_token_guards_the_page_and_opens_those_of_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_TOKEN", "open")
    async with supervised(tmp_path, token="open") as group:
        await group.pids()
        lines = [f"process {number}: ready: 2 partitions\n" for number in range(2)]
        await group.until_says("/readyz", (200, "".join(lines)))
        assert (await group.get("/metrics", token="wrong"))[0] == 401
        for path in ("/healthz", "/readyz"):  # probes have no token
            assert (await group.get(path, token="wrong"))[0] == 200


async def test_a_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = config.Http(port=taken.getsockname()[1])
        stop = asyncio.Event()
        terms = MemberTerms(
            ["no such command"], "pod-7", Supervised(http, stop, tmp_path).free, 0.0
        )
        with pytest.raises(Fatal, match=r"Set http\.port") as failure:
            await supervise(http, terms, 2, stop)
    assert failure.value.exit_code == EXIT_USAGE
