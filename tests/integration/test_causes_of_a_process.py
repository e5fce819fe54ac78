"""What a worker's process lacks, planted on a real worker: its page's first line, the doctor, the
log and an alert name it, and the page has no other line.

Rule: the worker alone is made to suffer, so that all who tell of it are quick. Times are written,
not judged: `pytest -s` shows them.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from tests.support.chromium import chromium
from tests.support.json_server import json_server
from tests.support.services import Services
from tests.support.told_causes import COUNT, Cause, all_well, check_alert, told_by_all
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

GROUPS = Path("/sys/fs/cgroup/cpu")
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
PARTITIONS = 4
CAUSES = {
    "quota": Cause(
        r"^This process gets 0\.\d+ of a core, and would use more: its container's limit of 0\.05 ",
        "PenstockStarved",
        ("starved", "too little of a processor"),
    ),
    "starved": Cause(
        r"^This process gets 0\.\d+ of a core, and would use more: \d+ tasks want",
        "PenstockStarved",
        ("starved", "too little of a processor"),
    ),
    "clock": Cause(
        r"^This machine's clock is (2 min|1[12]\d s) behind the store's",
        "PenstockClockOff",
        ("clock",),
    ),
}
pytestmark = [
    pytest.mark.skipif(not os.environ.get("EVERY_CAUSE"), reason="minutes: scripts/test long"),
    pytest.mark.skipif(not os.access(GROUPS, os.W_OK), reason="no group of processes may be made"),
    pytest.mark.skipif(not FAKETIME, reason="needs libfaketime (Debian: faketime)"),
]


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of processes to which this one belongs while it starts others."""
    ours = GROUPS / f"penstock-{os.getpid()}"
    ours.mkdir()
    yield ours
    for process in ("0", *(ours / "cgroup.procs").read_text().split()):
        with suppress(ProcessLookupError):  # it has just ended
            (GROUPS / "cgroup.procs").write_text(process)
    ours.rmdir()


@contextmanager
def hungry(cpu: int) -> Iterator[None]:
    """A process that uses this processor. Of what it leaves, one at nice 0 gets a tenth."""
    # It ends by itself, should nobody end it.
    loop = f"import os; os.sched_setaffinity(0, [{cpu}]); os.nice(-10); all(range(1, 1 << 32))"
    with subprocess.Popen([sys.executable, "-c", loop]) as hog:
        yield
        hog.kill()


@contextmanager
def planted(cause: str, group: Path, worker: int) -> Iterator[None]:
    match cause:
        case "quota":
            (group / "cpu.cfs_quota_us").write_text("5000")
            yield
            (group / "cpu.cfs_quota_us").write_text("-1")
        case "starved":
            cpu = max(os.sched_getaffinity(0))
            for thread in Path(f"/proc/{worker}/task").iterdir():
                os.sched_setaffinity(int(thread.name), [cpu])
            with hungry(cpu):
                yield
        case _:
            yield


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cause", CAUSES)
async def test_what_a_process_lacks_is_named_by_page_doctor_log_and_alert(
    services: Services,
    make_topics: Any,
    broker: Broker,
    tmp_path: Path,
    group: Path,
    cause: str,
) -> None:
    topics = await make_topics(PARTITIONS)

    async def load() -> None:
        """Forty records a second of each of four streams."""
        row = [[0.0] * 16]
        while True:
            for number in range(PARTITIONS):
                message = Message({"stream": f"cam-{number}", "inline": row}, number)
                await broker.publish(topics.input, [message])
            await asyncio.sleep(0.025)

    async with (
        json_server("/", lambda rows: [1.0] * len(rows)) as model,
        chromium() as browser,
        browser.tab() as tab,
        asyncio.TaskGroup() as tasks,
    ):
        environ = environment(services, topics, MODEL__PROTOCOL="http", MODEL__URL=f"{model.url}/")
        # A worker that is loaded anew is a child of this process, and so begins in our group.
        environ |= {"PYTHONHASHSEED": "0"}
        if cause == "clock":
            environ |= {
                "LD_PRELOAD": str(FAKETIME[0]),
                "FAKETIME": "-120",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        cfg = config.Config(http=config.Http(port=int(environ["PENSTOCK_HTTP__PORT"])))
        (group / "cgroup.procs").write_text("0")
        async with running_worker(environ) as worker:
            (GROUPS / "cgroup.procs").write_text("0")
            await worker.ready(PARTITIONS)
            await tab.open(f"http://127.0.0.1:{cfg.http.port}/")
            loading = tasks.create_task(load())
            await tab.until("document.querySelector('#verdict .first')")
            await tab.run(COUNT)
            if cause != "clock":
                await all_well(tab, worker)
            with planted(cause, group, worker.pid):
                page, scraped = await told_by_all(tab, cfg, worker, CAUSES[cause])
            sys.stdout.write(f"{cause}: {page}\n")
            loading.cancel()
            worker.may_end()
            await worker.stop()
    check_alert(tmp_path, CAUSES[cause], scraped)
