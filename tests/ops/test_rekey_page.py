"""The paths of a process without a page for people."""

import aiohttp
from prometheus_client import CollectorRegistry

from penstock import config
from penstock.ops.page.page import Page
from penstock.telemetry.rekey import RekeyTelemetry
from penstock.worker.rekey import RekeySource


async def test_a_process_without_a_page_for_people_shows_its_status_at_the_root_too() -> None:
    telemetry = RekeyTelemetry(CollectorRegistry())
    telemetry.count("passed")
    page = Page(config.Http(port=0), RekeySource(config.Kafka(), telemetry), document=None)
    async with page.open() as url, aiohttp.ClientSession() as session:

        async def text(path: str) -> str:
            async with session.get(url + path) as answer:
                assert answer.status == 200
                return await answer.text()

        assert await text("/healthz") == "ok\n"
        assert await text("/readyz") == "ready: stands by\n"
        assert 'penstock_rekey_messages_total{what="passed"} 1.0' in await text("/metrics")
        assert '"leads":false,"backlog":0' in await text("/api/status")
        assert await text("/") == await text("/api/status")


async def test_with_a_token_the_root_shows_nobody_a_status() -> None:
    telemetry = RekeyTelemetry(CollectorRegistry())
    settings = config.Http(port=0, token="open sesame")
    page = Page(settings, RekeySource(config.Kafka(), telemetry), document=None)
    async with page.open() as url, aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert answer.status == 401
            assert "input_topic" not in await answer.text()
        bearer = {"Authorization": "Bearer open sesame"}
        async with session.get(url, headers=bearer) as answer:
            assert '"leads":false' in await answer.text()
