"""A worker's metrics become a message at a webhook, by a real Prometheus and Alertmanager."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from prometheus_client import generate_latest

from penstock.telemetry.worker import Telemetry
from realstack.layout import free_ports
from tests.deploy.tools import DEPLOY, running, tool
from tests.support.waiting import DEADLINE_S


@asynccontextmanager
async def page_and_webhook(page: bytes) -> AsyncIterator[tuple[str, asyncio.Future[Any]]]:
    """A server that exports `page` and takes the webhook's first message."""
    said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page)

    async def alerts(request: web.Request) -> web.Response:
        message = await request.json()
        if not said.done():
            said.set_result(message)
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.post("/alerts", alerts)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}", said
    finally:
        await runner.cleanup()


async def test_a_store_that_fails_over_is_told_to_the_webhook(tmp_path: Path) -> None:
    prometheus, alertmanager = tool("prometheus"), tool("prometheus-alertmanager")
    telemetry = Telemetry(0.05)
    telemetry.replicas.store_failed_over("near")
    # Where no server that takes any free port, and no client, takes it before the program does.
    manager, itself = (f"127.0.0.1:{port}" for port in free_ports("ab").values())
    async with page_and_webhook(generate_latest(telemetry.registry)) as (served, notified):
        routes = yaml.safe_load((DEPLOY / "prometheus" / "alertmanager.yml").read_text())
        routes["route"]["group_wait"] = "0s"
        routes["receivers"][0]["webhook_configs"][0]["url"] = f"http://{served}/alerts"
        (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(routes))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(DEPLOY / "prometheus" / "rules.yml")],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
            "scrape_configs": [{"job_name": "penstock", "static_configs": [{"targets": [served]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        async with (
            running(
                tmp_path,
                alertmanager,
                "--config.file=alertmanager.yml",
                f"--web.listen-address={manager}",
                "--cluster.listen-address=",
                "--storage.path=manager",
            ),
            running(
                tmp_path,
                prometheus,
                "--config.file=prometheus.yml",
                f"--web.listen-address={itself}",
                "--storage.tsdb.path=data",
            ),
            asyncio.timeout(DEADLINE_S),
        ):
            message = await notified
    (alert,) = message["alerts"]
    assert alert["labels"]["alertname"] == "PenstockStoreFailsOver"
    assert (
        alert["annotations"]["summary"]
        == f"{served}: store near did not answer, a replica was asked"
    )
