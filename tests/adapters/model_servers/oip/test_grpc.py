"""The Open Inference Protocol over gRPC: what is sent, and what statuses are taken for."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.oip.grpc_calls import GrpcWire
from penstock.adapters.model_servers.oip.grpc_protocol import refusal
from penstock.adapters.model_servers.oip.model import OipModel
from penstock.core.rows.payload import Matrix
from penstock.errors import (
    EXIT_USAGE,
    Fatal,
    HungUp,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
    Unreachable,
)
from tests.adapters.model_servers.contract import expect
from tests.support import oip_grpc_server
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.reference_model import random_rows
from tests.support.secured import Authority

NUMBERS = random_rows(4)


def connected(server: OipGrpcServer, **settings: Any) -> aclosing[OipModel]:
    known = {"url": server.url, "request": "float32"}
    made = msgspec.convert(known | settings, config.Model)
    return aclosing(OipModel(made, GrpcWire(made)))


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
async def test_the_token_goes_along_and_is_read_again_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    denial = (grpc.StatusCode[code], "who are you")
    monkeypatch.setitem(oip_grpc_server._STATUSES, "denied", denial)
    file = tmp_path / "token"
    file.write_text("old")
    async with OipGrpcServer() as server, connected(server, token_file=str(file)) as model:
        await model.predict([Matrix(NUMBERS)])
        file.write_text("new")
        server.fail_next("denied")
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        assert set(server.tokens[:-1]) == {"Bearer old"}
        assert server.tokens[-1] == "Bearer new"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_over_tls_rows_and_the_token_go_to_a_server_that_is_trusted(
    authority: Authority,
) -> None:
    trusted = {"ssl_cafile": str(authority.cafile), "token": "a-token"}
    async with (
        OipGrpcServer(certificate=authority.sign("triton")) as server,
        connected(server, **trusted) as model,
    ):
        assert server.url.startswith("grpcs://")
        expect(await model.predict([Matrix(NUMBERS)]), NUMBERS)
        assert set(server.tokens) == {"Bearer a-token"}


async def test_a_server_that_is_not_trusted_is_a_usage_error_and_sees_no_token(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = {"ssl_cafile": str(Authority(tmp_path).cafile), "token": "a-token"}
    async with (
        OipGrpcServer(certificate=authority.sign("triton")) as server,
        connected(server, **stranger) as model,
    ):
        with pytest.raises(Fatal, match=r"model\.ssl_cafile") as caught:
            await model.predict(())
        assert caught.value.exit_code == EXIT_USAGE
        assert server.tokens == []


async def test_tls_to_a_server_that_speaks_none_sends_no_rows() -> None:
    async with (
        OipGrpcServer() as server,
        connected(server, url=server.url.replace("grpc:", "grpcs:")) as model,
    ):
        with pytest.raises(Unreachable):
            await model.predict([Matrix(NUMBERS)])
        assert server.asked == []


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "ftp://host:1", "grpc://host", "grpc://:8001"])
def test_an_address_that_is_none_is_told_with_an_example(url: str) -> None:
    with pytest.raises(Fatal, match="grpc://host:8001"):
        GrpcWire(config.Model(url=url))


CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (CODE.UNAVAILABLE, "failed to connect to all addresses; last error: x", Unreachable),
        (CODE.UNAVAILABLE, "recvmsg:connection reset by peer", HungUp),
        (CODE.UNAVAILABLE, "Request for model is not ready", Overloaded),
        (CODE.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (6 vs. 4)", Poison),
        (CODE.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 800: 5000", Poison),
        (
            CODE.RESOURCE_EXHAUSTED,
            "Received message exceeds the maximum configured message size.",
            Poison,
        ),
        (CODE.RESOURCE_EXHAUSTED, "too many", Overloaded),
        (CODE.INVALID_ARGUMENT, "unexpected shape", Rejected),
        (CODE.UNKNOWN, "Unexpected <class 'ValueError'>", Rejected),
        (CODE.UNIMPLEMENTED, "Method not found!", Fatal),
        (CODE.PERMISSION_DENIED, "", Fatal),
        (CODE.ABORTED, "", Transient),
        (CODE.UNAVAILABLE, "failed to connect; CERTIFICATE_VERIFY_FAILED", Unreachable),
        (CODE.UNAVAILABLE, "Ssl handshake failed: certificate verify failed", Fatal),
    ],
)
def test_a_status_is_told_by_what_was_said(
    code: grpc.StatusCode, words: str, expected: type[PenstockError]
) -> None:
    error = refusal(code, words, "host:8001 ModelInfer")
    assert type(error) is expected
    assert "host:8001 ModelInfer" in str(error)
