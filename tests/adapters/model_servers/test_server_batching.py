"""Reading a model's settings from TorchServe's management API, or from whatever answers there."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.model_servers.torchserve import ServerBatching, server_batching
from tests.support.worker import own_port

# As TorchServe 0.12 answers, in part.
ROWS = {
    "modelName": "rows",
    "modelVersion": "1.0",
    "minWorkers": 1,
    "batchSize": 32,
    "maxBatchDelay": 10,
    "responseTimeout": 120,
    "workers": [{"id": "9000", "status": "READY"}, {"id": "9001", "status": "READY"}],
    "jobQueueStatus": {"remainingCapacity": 990, "pendingRequests": 10},
}


class Management:
    """Answers as its test says; `asked` are the paths of the requests as they came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokens: list[str | None] = []
        self.status = 200
        self.answer: Any = [ROWS]
        self.port = 0
        self.runner: web.AppRunner
        self.closing = asyncio.Event()

    async def reply(self, request: web.Request) -> web.Response:
        self.asked.append(request.raw_path)
        self.tokens.append(request.headers.get("Authorization"))
        if self.answer is None:
            await self.closing.wait()
        return web.json_response(self.answer, status=self.status)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def management() -> AsyncIterator[Management]:
    server = Management()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.reply)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port, server.runner = runner.addresses[0][1], runner
    yield server
    server.closing.set()
    await runner.cleanup()


MOST_LOOK = "penstock.adapters.model_servers.torchserve.LOOK_S"


@pytest.fixture(autouse=True)
def the_look_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is not taken for a silent one because the machine is busy."""
    monkeypatch.setattr(MOST_LOOK, 60.0)


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def assert_silent(caplog: pytest.LogCaptureFixture) -> None:
    ours = [record for record in caplog.records if record.name.startswith("penstock")]
    assert [record.levelno for record in ours] == [logging.DEBUG]


async def test_the_settings_of_the_configured_model_are_read(management: Management) -> None:
    batching = await server_batching(
        config.Model(name="my rows", management_url=management.url + "/")
    )
    assert batching == ServerBatching(32, 10, workers=2, queue_size=1000, response_timeout_s=120)
    assert management.asked == ["/models/my%20rows"]


async def test_a_version_is_asked_for_by_its_name(management: Management) -> None:
    await server_batching(config.Model(version="2.0", management_url=management.url))
    assert management.asked == ["/models/rows/2.0"]


async def test_without_its_address_it_is_sought_on_the_next_port(management: Management) -> None:
    batching = await server_batching(config.Model(url=f"http://127.0.0.1:{management.port - 1}"))
    assert batching is not None
    assert management.asked == ["/models/rows"]


async def test_an_address_of_predictions_names_the_model_itself(management: Management) -> None:
    url = f"http://127.0.0.1:{management.port - 1}/predictions/other/1.0"
    assert await server_batching(config.Model(url=url)) is not None
    assert management.asked == ["/models/other/1.0"]


KEYS = {"management": {"key": "m"}, "inference": {"key": "i"}, "API": {"key": "a"}}


async def test_the_key_of_the_management_is_sent_to_the_address_that_is_set(
    management: Management, tmp_path: Path
) -> None:
    file = tmp_path / "key_file.json"
    file.write_text(json.dumps(KEYS))
    url = f"http://127.0.0.1:{management.port - 1}"
    await server_batching(config.Model(management_url=management.url, token_file=str(file)))
    await server_batching(config.Model(url=url, token_file=str(file)))
    assert management.tokens == ["Bearer m", None]  # the second address is a guess


async def test_a_unix_socket_is_asked(management: Management, tmp_path: Path) -> None:
    path = tmp_path / "management"
    await web.UnixSite(management.runner, str(path)).start()
    batching = await server_batching(config.Model(management_url=f"unix://{path}"))
    assert batching is not None
    assert management.asked == ["/models/rows"]


async def test_what_an_older_server_does_not_tell_is_left_open(management: Management) -> None:
    management.answer = [{"batchSize": 1, "maxBatchDelay": 100}]
    batching = await server_batching(config.Model(management_url=management.url))
    assert batching == ServerBatching(1, 100, workers=0)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, {"code": 404, "type": "ModelNotFoundException", "message": "Model not found: rows"}),
        (400, {"code": 400, "type": "InvalidKeyException", "message": "Token Authorization"}),
        (200, {"status": "ok"}),
        (200, []),
        (200, [{"batchSize": "many"}]),
        (200, None),
    ],
    ids=["no model", "a token", "no TorchServe", "nothing", "no number", "no answer"],
)
async def test_any_other_answer_is_silent(
    management: Management,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    answer: Any,
) -> None:
    management.status, management.answer = status, answer
    if answer is None:
        monkeypatch.setattr(MOST_LOOK, 0.1)
    assert await server_batching(config.Model(management_url=management.url)) is None
    assert_silent(caplog)


@pytest.mark.parametrize("management_url", ["http://127.0.0.1:{free}", "nowhere", "http://no host"])
async def test_an_address_without_a_server_is_silent(
    caplog: pytest.LogCaptureFixture, management_url: str
) -> None:
    settings = config.Model(management_url=management_url.format(free=own_port()))
    assert await server_batching(settings) is None
    assert_silent(caplog)


async def test_the_last_port_has_no_next_one(caplog: pytest.LogCaptureFixture) -> None:
    assert await server_batching(config.Model(url="http://127.0.0.1:65535")) is None
    assert_silent(caplog)
