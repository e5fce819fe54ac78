"""How servers of JSON are told when they refuse: by the status, and by what they said with it.

The Open Inference Protocol's table is in `oip/test_wires`; TorchServe's, byte by byte, is in
`test_torchserve_faults`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock import config
from penstock.adapters.model_servers.embeddings import EmbeddingsModel
from penstock.adapters.model_servers.json_model import JsonModel
from penstock.core.rows.payload import JsonRows
from penstock.errors import (
    Doubtful,
    Fatal,
    Overloaded,
    PenstockError,
    Poison,
    Rejected,
    Transient,
)
from penstock.ports import Model
from tests.support.json_server import json_server

TEXTS = JsonRows.of([b'"a"', b'""', b'"abc"'])


def embedded(body: Any) -> Any:
    return {"data": [{"index": index, "embedding": [1]} for index, _ in enumerate(body["input"])]}


class Protocol(NamedTuple):
    model: Callable[[config.Model], Any]
    path: str
    answer: Callable[[Any], Any]


HTTP = Protocol(JsonModel, "/", lambda rows: rows)
EMBEDDINGS = Protocol(EmbeddingsModel, "/v1/embeddings", embedded)

REFUSALS: list[tuple[Protocol, int, bytes, type[PenstockError]]] = [
    (HTTP, 400, b'{"error":"bad shape"}', Rejected),
    (HTTP, 422, b'{"detail":"bad shape"}', Rejected),
    (HTTP, 500, b'{"detail":"Internal server error"}', Doubtful),
    (HTTP, 413, b"", Poison),
    *((HTTP, status, b"", Rejected) for status in (406, 409, 412, 415, 416, 418, 424)),
    *((HTTP, status, b"", Overloaded) for status in (420, 429, 503, 509, 529)),
    # About the connection or the service, not about rows. The servers that use the numbers that are
    # not registered are IIS (440, 449), nginx (444, 499), AWS (460, 463, 561), Cloudflare (520 to
    # 530) and several proxies (598, 599).
    *((HTTP, status, b"", Transient) for status in (408, 421, 423, 425, 440, 444, 449, 460, 463)),
    *((HTTP, status, b"", Transient) for status in (499, 506, 507, 508, 510, 511, 561, 598, 599)),
    *((HTTP, status, b"<html>", Transient) for status in (502, 504, *range(520, 528), 530)),
    *((HTTP, status, b"", Fatal) for status in (401, 402, 403, 407, 498)),
    *((HTTP, status, b"", Fatal) for status in (404, 405, 410, 411, 414, 417, 426, 428, 431)),
    *((HTTP, status, b"", Fatal) for status in (451, 494, 501, 505, 300, 304)),
    (EMBEDDINGS, 413, b'{"error":"`inputs` must have less than 512 tokens"}', Rejected),
    (EMBEDDINGS, 400, b'{"error":{"message":"maximum context length is 8192 tokens"}}', Rejected),
    (EMBEDDINGS, 413, b"<html>Request Entity Too Large", Poison),
    (EMBEDDINGS, 424, b'{"error":"backend error","error_type":"Backend"}', Transient),
    (EMBEDDINGS, 429, b'{"error":"Model is overloaded","error_type":"Overloaded"}', Overloaded),
    (EMBEDDINGS, 500, b"Internal Server Error", Transient),
    (EMBEDDINGS, 503, b"", Overloaded),
    (EMBEDDINGS, 401, b"", Fatal),
    (EMBEDDINGS, 404, b'{"error":{"message":"The model `bge` does not exist."}}', Fatal),
]


@pytest.mark.parametrize(("protocol", "status", "body", "expected"), REFUSALS)
async def test_a_refusal_is_told_by_status_and_words_and_the_next_request_is_answered(
    protocol: Protocol, status: int, body: bytes, expected: type[PenstockError]
) -> None:
    async with json_server(protocol.path, protocol.answer) as server:
        path = {"path": "/"} if protocol is HTTP else {}
        model: Model = protocol.model(msgspec.convert({"url": server.url} | path, config.Model))
        server.refusals.append((status, body))
        with pytest.raises(expected) as caught:
            await model.predict([TEXTS])
        assert type(caught.value) is expected
        assert (b"bad shape" not in body) or "bad shape" in str(caught.value)
        assert len((await model.predict([TEXTS])).values) == 3
        await model.aclose()
