"""Who tells of a cause of trouble: a worker's page in Chromium, the doctor, its log, the alerts.

The alerts are judged by promtool, on what the worker exported while the cause lasted.
"""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import yaml

from penstock import config
from penstock.core.diagnosis import problem
from penstock.tools.doctor.examine import look_at_worker
from tests.deploy.capture import EVERY_S, Scraped, at_once, note, series
from tests.deploy.tools import tool
from tests.support.chromium import Tab
from tests.support.waiting import until
from tests.support.worker import Worker

SCRAPES = 4
CALM = "document.querySelector('#verdict .first')?.innerText === 'All is well'"
# Late objects, and letters, are told of for a minute.
CALM_S = 150.0


class Cause(NamedTuple):
    """`line`: what the first line must match. `alert`, and what it must tell. `log`: what the log
    must say, if an event of its own tells it in other words.
    """

    line: str
    alert: str
    tells: tuple[str, ...]
    log: str = ""


# Counts the updates, and keeps each first line that is new.
COUNT = """heard = 0; lines = []; { const told = verdict; verdict = (...all) => {
  heard += 1; told(...all); const line = document.querySelector("#verdict .first").innerText;
  if (lines.at(-1)?.[1] !== line) lines.push([heard, line]) } }"""


async def all_well(tab: Tab, worker: Worker) -> None:
    """Until nothing is told of a worker that is judged: while it starts, nothing ever is."""

    async def is_settled() -> bool:
        return problem.is_settled(json.loads((await worker.get("/api/status"))[1]))

    await until(is_settled, lambda: "a worker that is judged")
    await tab.until(CALM, CALM_S)


async def lines_until(tab: Tab, line: str) -> list[tuple[int, str]]:
    """The first lines until one matches, each with the number of the update that brought it."""
    await tab.run("heard = 0; lines = []")
    await tab.until(f"lines.some(([_, line]) => RegExp({json.dumps(line)}).test(line))")
    lines: list[tuple[int, str]] = await tab.run("lines")
    return lines


async def told_by_all(
    tab: Tab, cfg: config.Config, worker: Worker, cause: Cause
) -> tuple[str, Scraped]:
    """Waits until the page, the doctor and the log name the cause. Returns what the page has told,
    after how many seconds, and what the worker exports then.
    """
    began_s = monotonic()
    lines = await lines_until(tab, cause.line)
    took_s = [monotonic() - began_s]
    beside = await tab.run("document.querySelectorAll('#verdict li').length")
    assert beside == 0, await tab.text("#verdict")
    await until_doctor_says(cfg, cause.line)
    took_s.append(monotonic() - began_s)
    await until_log_says(worker, cause.log or cause.line.removeprefix("^"))
    took_s.append(monotonic() - began_s)
    page_s, doctor_s, log_s = took_s
    took = f"page {page_s:.1f} s, doctor by {doctor_s:.1f} s, log by {log_s:.1f} s"
    return f"{took}: {lines}", await captured(worker)


def check_alert(folder: Path, cause: Cause, scraped: Scraped) -> None:
    """Where promtool is: does the alert tell what it must?"""
    alert = fired(folder, cause.alert, scraped)
    assert all(word in alert for word in cause.tells), alert


async def until_doctor_says(cfg: config.Config, line: str) -> None:
    """The page was told at another moment than the doctor is, and a cause comes and goes."""
    said = ""

    async def does() -> bool:
        nonlocal said
        said = (await look_at_worker(cfg))[0].said
        return bool(re.search(line, said, re.IGNORECASE))

    await until(does, lambda: f"{line!r} from the doctor, who says {said!r}")


async def until_log_says(worker: Worker, line: str) -> None:
    async def does() -> bool:
        return bool(re.search(line, worker.said, re.IGNORECASE))

    await until(does, lambda: f"{line!r} in the log: {worker.said}")


async def captured(worker: Worker) -> Scraped:
    found: Scraped = {}
    await asyncio.sleep(1.0)
    for _ in range(SCRAPES):
        await asyncio.sleep(0.5)
        note((await worker.get("/metrics"))[1], found)
    return found


def fired(folder: Path, alert: str, scraped: Scraped) -> str:
    """What the alert tells, at the last scrape; empty if its expression is not true."""
    at = f"{EVERY_S * (SCRAPES - 1)}s"
    test = {
        "interval": f"{EVERY_S}s",
        "input_series": series(scraped),
        # Wrong on purpose: promtool then prints what it got instead.
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": []}],
    }
    file = folder / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(at_once(folder))],
                "evaluation_interval": f"{EVERY_S}s",
                "tests": [test],
            }
        )
    )
    command = [tool("promtool"), "test", "rules", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if said.returncode == 0 else said.stdout + said.stderr
