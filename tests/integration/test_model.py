"""The contract of model servers on a real TorchServe, and what only that one can confirm."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.core.rows.payload import JsonRows, Matrix
from penstock.errors import EXIT_USAGE, Fatal, Poison, Rejected
from penstock.ports import Model
from tests.adapters.model_servers.contract import ModelContract, expect
from tests.support.reference_model import random_rows
from tests.support.services import Services


def connect(services: Services, **settings: object) -> TorchServeModel:
    known = {"url": services.model_url, "name": services.model_name}
    return TorchServeModel(msgspec.convert(known | settings, config.Model))


@pytest.fixture(params=["json", "instances", "float32"])
def form(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


class TestTorchServe(ModelContract):
    @pytest.fixture
    async def model(self, services: Services, form: str) -> AsyncIterator[Model]:
        model = connect(services, request=form)
        yield model
        await model.aclose()


async def test_the_whole_address_and_a_version_find_the_same_model(services: Services) -> None:
    rows = random_rows(3)
    address = f"{services.model_url}/predictions/{services.model_name}"
    for settings in ({"url": address}, {"version": "1.0"}):
        model = connect(services, request="float32", **settings)
        expect(await model.predict([Matrix(rows)]), rows)
        await model.aclose()


@pytest.mark.parametrize("wrong", [{"name": "no-such-model"}, {"version": "9.9"}])
async def test_a_model_that_is_not_there_is_a_usage_error(
    services: Services, wrong: dict[str, str]
) -> None:
    model = connect(services, **wrong)
    assert not await model.ready()
    with pytest.raises(Fatal, match=r"model\.name") as caught:
        await model.predict([JsonRows.of([b"[1]"])])
    assert caught.value.exit_code == EXIT_USAGE
    await model.aclose()


async def test_a_body_the_handler_cannot_read_is_rejected(services: Services) -> None:
    model = connect(services, request="float32")
    with pytest.raises(Rejected) as caught:
        await model.predict([Matrix(random_rows(4)[:, :3].copy())])
    assert caught.value.code == "model_rejected"
    await model.aclose()


async def test_a_request_above_the_servers_limit_is_too_large(services: Services) -> None:
    model = connect(services)
    with pytest.raises(Poison) as caught:
        await model.predict([JsonRows.of([b'"' + b"x" * 7_000_000 + b'"'])])
    assert caught.value.code == "too_large"
    await model.aclose()
