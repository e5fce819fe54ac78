"""Every panel of the boards shows something of a recorded run, by a real Prometheus.

Rule: the run is of two real workers (record.py): a restart, a stream with bad rows, a shadow.
"""

import gzip
import json
import math
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from realstack.layout import free_ports
from tests.deploy.record import BEGIN_S, EVERY_S, RECORDING, SCRAPES
from tests.deploy.tools import DEPLOY, running, tool
from tests.support.waiting import until

BOARDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
}
END_S = BEGIN_S + SCRAPES * EVERY_S
# What Grafana would put in the place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$job": ".*", "$stream": ".*"}


def expressions(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield f"{panel['title']}: {target['legendFormat']}", expression


async def asked(session: aiohttp.ClientSession, expression: str) -> list[Any]:
    """The series of the whole run; none without a number."""
    over: dict[str, str | int] = {"query": expression, "start": BEGIN_S, "end": END_S, "step": "15"}
    async with session.get("/api/v1/query_range", params=over) as answer:
        document = await answer.json()
    assert document["status"] == "success", document
    return [
        series
        for series in document["data"]["result"]
        if any(math.isfinite(float(value)) for _, value in series["values"])
    ]


async def is_ready(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


def recorded(folder: Path) -> None:
    """Make the recording the data of a Prometheus that scrapes nothing."""
    text = folder / "recorded.om"
    text.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    command = [tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")


@asynccontextmanager
async def prometheus_of_the_run(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    prometheus = tool("prometheus")
    recorded(folder)
    # Where no server that takes any free port, and no client, takes it before the program does.
    (port,) = free_ports(["web"]).values()
    at = f"127.0.0.1:{port}"
    command = [prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={at}"]
    async with (
        running(folder, *command),
        aiohttp.ClientSession(f"http://{at}") as session,
    ):
        await until(partial(is_ready, session), lambda: "Prometheus")
        yield session


async def test_every_panel_shows_something_of_the_recorded_run(tmp_path: Path) -> None:
    async with prometheus_of_the_run(tmp_path) as session:
        empty = [
            f"{name}: {what}"
            for name, board in BOARDS.items()
            for what, expression in expressions(board)
            if not await asked(session, expression)
        ]
    assert not empty


async def test_the_recorded_run_is_what_the_alerts_would_say_of_it(tmp_path: Path) -> None:
    """Without their patience (`for`), so the restart is seen, too. The stream with bad rows
    stopped, and objects were late, as the machine was busy.
    """
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"][0]["rules"]
    async with prometheus_of_the_run(tmp_path) as session:
        alerts = {rule["alert"] for rule in rules if await asked(session, rule["expr"])}
    assert alerts == {"PenstockObjectsLate", "PenstockLineStopped", "PenstockMetricsAbsent"}


def test_the_night_fits_one_screen() -> None:
    panels = BOARDS["night"]["panels"]
    assert len(panels) <= 12
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) <= 27


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_has_an_expression(name: str) -> None:
    assert all(panel["targets"] for panel in BOARDS[name]["panels"])


def test_the_boards_are_provisioned() -> None:
    services = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())["services"]
    mounted = dict(mount.split(":")[:2] for mount in services["grafana"]["volumes"])
    providers = DEPLOY / "grafana" / "provisioning" / "dashboards" / "penstock.yml"
    (provider,) = yaml.safe_load(providers.read_text())["providers"]
    assert mounted["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/night.json"
    assert set(BOARDS) == {"night", "stream"}
