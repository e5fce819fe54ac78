"""The contract of model servers: each protocol's adapter on an embedded server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.chat import ChatModel
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire
from penstock.adapters.model_servers.oip.model import OipModel
from penstock.adapters.model_servers.oip.rest_calls import RestWire
from penstock.adapters.model_servers.protocols import open_model
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Model
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.adapters.model_servers.contract import ModelContract
from tests.support.chat_server import chat_server
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.oip_server import Manner, OipServer


@pytest.mark.parametrize("form", ["json", "instances", "float32"])
class TestTorchServeAdapter(ModelContract):
    @pytest.fixture
    async def model(self, form: str) -> AsyncIterator[Model]:
        async with EmbeddedModelServer() as server:
            settings = {"url": server.url, "request": form}
            model = TorchServeModel(msgspec.convert(settings, config.Model))
            yield model
            await model.aclose()


@pytest.mark.parametrize("form", ["json", "instances", "float32"])
class TestEnvelopeAdapter(ModelContract):
    @pytest.fixture
    async def model(self, form: str) -> AsyncIterator[Model]:
        async with EmbeddedModelServer() as server:
            settings = {"url": server.url, "request": form, "path": "/predictions/{name}"}
            model = JsonModel(msgspec.convert(settings, config.Model))
            yield model
            await model.aclose()


@pytest.mark.parametrize("form", ["raw"])
class TestChatAdapter(ModelContract):
    @pytest.fixture
    async def model(self, form: str, tmp_path: Path) -> AsyncIterator[Model]:
        (tmp_path / "any.json").write_bytes(b"{}")
        async with chat_server() as server:
            settings = {"url": server.url, "name": "eye", "prompt": "?", "request": form}
            settings["answer_schema"] = str(tmp_path / "any.json")
            model = ChatModel(msgspec.convert(settings, config.Model))
            yield model
            await model.aclose()


@pytest.mark.parametrize("form", ["json", "float32"])
class TestOipAdapter(ModelContract):
    @pytest.fixture(params=get_args(Manner))
    async def model(self, form: str, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
        async with OipServer(request.param) as server:
            settings = msgspec.convert({"url": server.url, "request": form}, config.Model)
            model = OipModel(settings, RestWire(settings))
            yield model
            await model.aclose()


@pytest.mark.parametrize("form", ["json", "float32"])
class TestOipGrpcAdapter(ModelContract):
    @pytest.fixture(params=["raw", "typed"])
    async def model(self, form: str, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
        async with OipGrpcServer(typed=request.param == "typed") as server:
            settings = msgspec.convert({"url": server.url, "request": form}, config.Model)
            model = OipModel(settings, GrpcWire(settings))
            yield model
            await model.aclose()


@pytest.mark.parametrize("protocol", get_args(config.Protocol))
@pytest.mark.parametrize("url", ["http://user:pass@host:abc", "grpc://host:99999", "http://[::1"])
def test_an_address_that_cannot_be_read_is_a_setting_to_mend(protocol: str, url: str) -> None:
    is_chat = protocol == "openai-chat"
    model = {"url": url, "protocol": protocol, "request": "raw" if is_chat else "json"}
    model |= {"prompt": "?"} if is_chat else {}
    with pytest.raises(Fatal, match=r"model\.url cannot be read") as caught:
        open_model(config.Config(model=msgspec.convert(model, config.Model)))
    assert caught.value.exit_code == EXIT_USAGE
    assert "pass" not in str(caught.value)
