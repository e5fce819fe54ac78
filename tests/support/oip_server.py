"""A small server of the Open Inference Protocol over REST, with the manners of the real ones.

Rule: it answers what the example model answers, and what Triton 2.51, MLServer 1.7 and KServe 0.21
were seen to answer when something was wrong. Tests script its faults.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import orjson
from aiohttp import web

from penstock.adapters.model_servers.oip.signature import BYTES, DTYPES
from tests.support.oip_models import ROWS, Described, Fault, Outputs, binary, faulty, texts
from tests.support.scripted import ScriptedHttp, hang_up

Manner = Literal["triton", "mlserver", "kserve"]
LENGTH = "Inference-Header-Content-Length"
NUMPY = orjson.OPT_SERIALIZE_NUMPY


class OipServer(ScriptedHttp[Fault]):
    """`async with OipServer("triton") as server:`, then `server.url`. `requests` keeps of every
    inference whether it was binary, its id, and its number of rows.
    """

    def __init__(self, manner: Manner = "triton", model: Described = ROWS) -> None:
        super().__init__()
        self.manner = manner
        self.model = model
        self.requests: list[tuple[bool, str, int]] = []
        self.looks = 0

    @property
    def identities(self) -> list[str]:
        return [identity for _, identity, _ in self.requests]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            router.add_get(path, self._metadata)
            router.add_get(path + "/ready", self._ready)
            router.add_post(path + "/infer", self._infer)
            if self.manner == "triton":
                router.add_get(path + "/config", self._config)
        router.add_get("/v2", self._server)

    async def _server(self, _: web.Request) -> web.Response:
        known = {"triton": ["binary_tensor_data"], "kserve": ["model_repository_extension"]}
        return _json(200, {"name": self.manner, "extensions": known.get(self.manner, [])})

    async def _metadata(self, request: web.Request) -> web.Response:
        self.looks += 1
        if missing := self._missing(request):
            return missing
        sides = {"inputs": self.model.inputs, "outputs": self.model.outputs}
        document: dict[str, Any] = {
            side: [
                dict(zip(("name", "datatype", "shape"), tensor, strict=True)) for tensor in tensors
            ]
            for side, tensors in sides.items()
        }
        versions = {"triton": ["1"], "mlserver": [], "kserve": None}[self.manner]
        return _json(200, {"name": "rows", "versions": versions, "platform": ""} | document)

    async def _config(self, request: web.Request) -> web.Response:
        return self._missing(request) or _json(200, {"max_batch_size": self.model.most_rows or 0})

    async def _ready(self, request: web.Request) -> web.Response:
        return self._missing(request) or web.Response()

    async def _infer(self, request: web.Request) -> web.StreamResponse:
        fault = self._next_fault()
        if missing := self._missing(request):
            return missing
        if refused := _refused(fault, self.manner):
            return refused
        if fault == "disconnected":
            return hang_up(request)
        if fault == "slow":
            await self._released.wait()
        body, length = await request.read(), request.headers.get(LENGTH)
        if length is not None and self.manner == "mlserver":
            return _raised(self.manner, "")
        try:
            document, inputs = _read(body, length)
            self.requests.append(
                (length is not None, document["id"], len(next(iter(inputs.values()))))
            )
            if complaint := self._complaint(inputs):
                return _json(400, {"error": complaint})
            outputs = faulty(fault, self.model.compute(inputs))
        except (ValueError, KeyError, TypeError) as error:
            return _raised(self.manner, str(error))
        if fault == "nonsense":
            return web.Response(body=b"\x00\xff[[")
        is_asked = document.get("parameters", {}).get("binary_data_output", False)
        answer = _encoded(document["id"], outputs, is_binary=is_asked and self.manner == "triton")
        return await _cut_short(request, answer) if fault == "cut" else answer

    def _missing(self, request: web.Request) -> web.Response | None:
        name, version = request.match_info["name"], request.match_info.get("version", "1")
        if name != "rows":
            content_type = "text/plain" if self.manner == "triton" else "application/json"
            return _json(
                404, {"error": f"Request for unknown model: '{name}' is not found"}, content_type
            )
        if version != "1":
            status = 501 if self.manner == "kserve" else 404
            return _json(status, {"error": "Model versioning not supported yet."})
        return None

    def _complaint(self, inputs: Mapping[str, Any]) -> str | None:
        """What Triton checks before the model is asked."""
        rows = len(next(iter(inputs.values())))
        if self.manner == "triton" and (not rows or rows > (self.model.most_rows or rows)):
            return f"inference request batch-size must be <= {self.model.most_rows} for 'rows'"
        return None


def _refused(fault: Fault | None, manner: Manner) -> web.Response | None:
    if fault == "model_raised":
        return _raised(manner, "ValueError : a row is not finite")
    if fault == "unavailable":
        return _json(503, {"error": "Exceeds maximum queue size"})
    if fault == "loading":
        return _json(404, {"error": "Request for unknown model: 'rows' has no available versions"})
    if fault == "no_model":
        return _json(404, {"error": "Request for unknown model: 'rows' is not found"})
    if fault == "denied":
        return _json(401, {"error": "unauthorized"})
    return web.Response(status=413) if fault == "too_large" else None


def _read(body: bytes, length: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    end = int(length) if length is not None else len(body)
    document = orjson.loads(body[:end])
    rest, inputs = body[end:], {}
    for one in document["inputs"]:
        kind, shape = one["datatype"], one["shape"]
        size = one.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = [text.encode() for text in one["data"]] if kind == BYTES else one["data"]
            values = np.array(data, object if kind == BYTES else DTYPES[kind])
        else:
            raw, rest = rest[:size], rest[size:]
            values = texts(raw) if kind == BYTES else np.frombuffer(raw, DTYPES[kind])
        inputs[one["name"]] = values.reshape(shape)
    if rest:
        raise ValueError(f"{len(rest)} bytes too many")
    return document, inputs


def _encoded(identity: str, outputs: Outputs, *, is_binary: bool) -> web.Response:
    described, tail = [], b""
    for name, kind, values in outputs:
        one: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(values.shape)}
        if is_binary:
            raw = binary(values)
            one["parameters"] = {"binary_data_size": len(raw)}
            tail += raw
        elif values.dtype == object:
            one["data"] = [text.decode() for text in values.ravel()]
        else:
            one["data"] = values.ravel()
        described.append(one)
    head = orjson.dumps(
        {"model_name": "rows", "id": identity, "parameters": None, "outputs": described},
        option=NUMPY,
    )
    if not is_binary:
        return web.Response(body=head, content_type="application/json")
    headers = {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    return web.Response(body=head + tail, headers=headers)


def _raised(manner: Manner, message: str) -> web.Response:
    """How each tells of an exception in the model."""
    if manner == "mlserver":
        return web.Response(status=500, text="Internal Server Error")
    content_type = "text/plain" if manner == "triton" else "application/json"
    return _json(500, {"error": message}, content_type)


def _json(status: int, document: Any, content_type: str = "application/json") -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), content_type=content_type)


async def _cut_short(request: web.Request, whole: web.Response) -> web.StreamResponse:
    assert isinstance(whole.body, bytes)
    response = web.StreamResponse(headers=whole.headers)
    response.headers["Content-Length"] = str(len(whole.body))
    await response.prepare(request)
    await response.write(whole.body[: len(whole.body) // 2])
    return hang_up(request)
