"""What the TorchServe adapter sends, and what it makes of a server that fails in known ways."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.model_servers.access import ServerAccess
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.core.rows.payload import JsonRows
from penstock.errors import (
    EXIT_USAGE,
    Fatal,
    HungUp,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Unreachable,
    WorkerDied,
)
from tests.adapters.model_servers.hurry import in_a_hurry
from tests.support.faulty_torchserve import Fault, FaultyTorchServe
from tests.support.reference_model import random_rows

ROWS = JsonRows.of([orjson.dumps(row) for row in random_rows(4).tolist()])


@pytest.fixture
async def server() -> AsyncIterator[FaultyTorchServe]:
    async with FaultyTorchServe() as server:
        yield server


class Connected:
    """An adapter on a server, closed at the end."""

    def __init__(self, server: FaultyTorchServe, **settings: Any) -> None:
        known = {"url": server.url}
        self.model = TorchServeModel(msgspec.convert(known | settings, config.Model))

    async def __aenter__(self) -> TorchServeModel:
        return self.model

    async def __aexit__(self, *_: object) -> None:
        await self.model.aclose()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("overloaded", Overloaded),
        ("worker_died", WorkerDied),
        ("worker_killed", WorkerDied),
        ("disconnected", HungUp),
        ("cut", HungUp),
        ("handler_raised", Rejected),
        ("out_of_resources", Rejected),
        ("too_large", Poison),
        ("one_too_few", Poison),
        ("no_model", Fatal),
        ("bad_token", Fatal),
    ],
)
async def test_a_fault_is_told_by_its_kind_and_the_next_request_is_answered(
    server: FaultyTorchServe, fault: Fault, expected: type[PenstockError]
) -> None:
    async with Connected(server) as model:
        server.fail_next(fault)
        with pytest.raises(expected) as caught:
            await model.predict([ROWS])
        assert type(caught.value) is expected
        assert len((await model.predict([ROWS])).values) == 4


async def test_a_number_that_json_does_not_have_rejects_its_row_alone(
    server: FaultyTorchServe,
) -> None:
    async with Connected(server) as model:
        server.fail_next("not_a_number")
        assert list((await model.predict([ROWS])).errors) == [0]


async def test_poison_names_the_code_of_the_dead_letter(server: FaultyTorchServe) -> None:
    async with Connected(server) as model:
        codes = []
        server.fail_next("handler_raised", "too_large", "one_too_few")
        for _ in range(3):
            with pytest.raises(Poison) as caught:
                await model.predict([ROWS])
            codes.append(caught.value.code)
    assert codes == ["model_rejected", "too_large", "model_mismatch"]


async def test_a_server_that_takes_too_long_is_unreachable(server: FaultyTorchServe) -> None:
    async with Connected(server) as model:
        await model.predict([ROWS])
        server.fail_next("slow")
        with in_a_hurry(model._http, 0.05), pytest.raises(Unreachable, match="timeout_ms"):
            await model.predict([ROWS])


async def test_a_server_that_is_away_is_unreachable_and_not_ready() -> None:
    async with FaultyTorchServe() as server:
        pass
    async with Connected(server) as model:
        assert not await model.ready()
        with pytest.raises(Unreachable, match=r"model\.url"):
            await model.predict([ROWS])


@pytest.mark.parametrize(
    ("fault", "ready"),
    [
        ("no_model", False),
        ("worker_died", False),
        ("disconnected", False),
        ("handler_raised", True),
        ("overloaded", True),
    ],
)
async def test_a_server_is_ready_if_it_answers_a_prediction_even_by_a_complaint(
    server: FaultyTorchServe, fault: Fault, *, ready: bool
) -> None:
    async with Connected(server) as model:
        server.fail_next(fault)
        assert await model.ready() is ready


async def test_a_cancelled_call_leaves_the_adapter_usable(server: FaultyTorchServe) -> None:
    async with Connected(server) as model:
        server.fail_next("slow")
        call = asyncio.create_task(model.predict([ROWS]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.release()
        assert len((await model.predict([ROWS])).values) == 4


async def test_the_configured_token_is_sent() -> None:
    async with (
        FaultyTorchServe(token="secret") as server,
        Connected(server, token="secret") as model,
    ):
        assert len((await model.predict([ROWS])).values) == 4


@pytest.mark.parametrize("form", ["{}\n", '{{"inference": {{"key": "{}"}}}}'])
async def test_a_token_that_expired_is_read_again_from_its_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "token"
    path.write_text(form.format("first"))
    async with (
        FaultyTorchServe(token="first") as server,
        Connected(server, token_file=str(path)) as model,
    ):
        await model.predict([ROWS])
        server.token = "second"
        path.write_text(form.format("second"))
        assert len((await model.predict([ROWS])).values) == 4
        server.token = "third"
        with pytest.raises(Fatal, match="token_file"):
            await model.predict([ROWS])


class Gateway(FaultyTorchServe):
    """A gateway that checks the token before TorchServe, and answers a wrong one by a page."""

    denial = 401

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        if self._refusal(request):
            return web.Response(
                status=self.denial, text="<html>no</html>", content_type="text/html"
            )
        return await super()._predictions(request)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_token_that_a_gateway_refuses_is_read_again_from_its_file(
    tmp_path: Path, status: int
) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    async with (
        Gateway(token="first") as server,
        Connected(server, token_file=str(path)) as model,
    ):
        server.denial = status
        await model.predict([ROWS])
        server.token = "second"
        path.write_text("second")
        assert len((await model.predict([ROWS])).values) == 4
        server.token = "third"
        with pytest.raises(Fatal, match="token_file"):
            await model.predict([ROWS])


@pytest.mark.parametrize(
    "content", [b"hush-hush \xe9", b'{"inference": {"key": "hush-hush \xe9"}}']
)
def test_a_token_file_that_is_not_utf_8_is_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(Fatal, match=r"token_file.*is not UTF-8") as caught:
        TorchServeModel(config.Model(token_file=str(path)))
    assert "hush-hush" not in "".join(traceback.format_exception(caught.value))


async def test_a_refusal_that_quotes_the_former_token_is_not_shown(tmp_path: Path) -> None:
    """It was sent before another request's refusal had the file read again."""
    path = tmp_path / "token"
    path.write_text("token-one")
    access = ServerAccess(config.Model(token_file=str(path)))
    path.write_text("token-two")
    for _ in range(2):  # the second finds nothing new
        assert await access.renewed()
    shown = access.masked_text("Bearer token-one or token-two")
    assert shown == "Bearer ******** or ********"


def test_a_token_file_that_is_missing_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="token_file") as caught:
        TorchServeModel(config.Model(token_file=str(tmp_path / "none")))
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("settings", [{"url": "localhost:8080"}, {"request": "xml"}])
def test_settings_that_cannot_work_are_usage_errors(settings: dict[str, str]) -> None:
    with pytest.raises(Fatal, match="model") as caught:
        TorchServeModel(msgspec.convert(settings, config.Model))
    assert caught.value.exit_code == EXIT_USAGE


async def test_the_version_is_known_only_if_configured(server: FaultyTorchServe) -> None:
    async with Connected(server) as plain, Connected(server, version="1.0") as versioned:
        assert plain.version is None
        assert versioned.version == "1.0"
        assert len((await versioned.predict([ROWS])).values) == 4


async def test_a_request_above_the_servers_limit_is_too_large(server: FaultyTorchServe) -> None:
    async with Connected(server) as model:
        with pytest.raises(Poison) as caught:
            await model.predict([JsonRows.of([b'"' + b"x" * 7_000_000 + b'"'])])
        assert caught.value.code == "too_large"
        assert len((await model.predict([ROWS])).values) == 4


async def test_one_request_carries_the_whole_batch(server: FaultyTorchServe) -> None:
    async with Connected(server) as model:
        await model.predict([ROWS, ROWS.cut(1, 3)])
    assert server.batch_rows == [6]
