"""The contract of model servers: the TorchServe adapter on the embedded server."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from consumers import config
from consumers.adapters.model_torchserve import TorchServeModel
from consumers.embedded.model_server import EmbeddedModelServer
from consumers.ports import Model
from tests.adapters.model_contract import ModelContract


@pytest.fixture(params=["json", "instances", "float32"])
def form(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


class TestTorchServeAdapter(ModelContract):
    @pytest.fixture
    async def model(self, form: str) -> AsyncIterator[Model]:
        async with EmbeddedModelServer() as server:
            settings = {"url": server.url, "request": form}
            model = TorchServeModel(msgspec.convert(settings, config.Model))
            yield model
            await model.aclose()
