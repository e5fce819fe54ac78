"""A small server of the Open Inference Protocol over gRPC, with faults as real ones were seen to
have them. `typed`: it answers by typed values, as some do, instead of raw contents. With a
`certificate` and its key it speaks TLS.
"""

from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import numpy as np

from penstock.adapters.model_servers.oip.grpc_protocol import CONTENTS, MESSAGES, SERVICE
from penstock.adapters.model_servers.oip.signature import BYTES, DTYPES
from tests.support.oip_models import ROWS, Described, Fault, binary, faulty, texts
from tests.support.scripted import Scripted

_STATUSES: dict[Fault, tuple[grpc.StatusCode, str]] = {
    "model_raised": (grpc.StatusCode.INTERNAL, "ValueError: a row is not finite"),
    "unavailable": (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size"),
    "loading": (grpc.StatusCode.NOT_FOUND, "'rows' has no available versions"),
    "no_model": (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'rows' is not found"),
    "denied": (grpc.StatusCode.UNAUTHENTICATED, "who are you"),
    "too_large": (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "Received message larger than max (6553631 vs. 4194304)",
    ),
    # What the library says when the connection breaks under a call.
    "disconnected": (grpc.StatusCode.UNAVAILABLE, "Socket closed"),
}


class OipGrpcServer(Scripted[Fault]):
    """`async with OipGrpcServer() as server:`, then `server.url`; `tokens` are what it was sent."""

    def __init__(
        self,
        model: Described = ROWS,
        *,
        typed: bool = False,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.url = ""
        self.tokens: list[str | None] = []
        self.traceparents: list[str | None] = []
        self.asked: list[str] = []
        self.identities: list[str] = []
        self._typed = typed
        self._certificate = certificate
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        methods = {
            "ModelReady": self._ready,
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                handler,
                MESSAGES[f"{name}Request"].FromString,
                MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, handler in methods.items()
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        scheme, address = "grpc", "127.0.0.1:0"
        if self._certificate is None:
            port = self._server.add_insecure_port(address)
        else:
            certificate, key = (path.read_bytes() for path in self._certificate)
            credentials = grpc.ssl_server_credentials([(key, certificate)])
            scheme, port = "grpcs", self._server.add_secure_port(address, credentials)
        await self._server.start()
        self.url = f"{scheme}://127.0.0.1:{port}"
        return self

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    async def _note(self, method: str, context: Any, name: str) -> None:
        self.asked.append(method)
        given = dict(context.invocation_metadata())
        self.tokens.append(given.get("authorization"))
        self.traceparents.append(given.get("traceparent"))
        if name != "rows":
            await context.abort(*_STATUSES["no_model"])

    async def _ready(self, request: Any, context: Any) -> Any:
        await self._note("ModelReady", context, request.name)
        return MESSAGES["ModelReadyResponse"](ready=True)

    async def _metadata(self, request: Any, context: Any) -> Any:
        await self._note("ModelMetadata", context, request.name)
        inputs = [
            {"name": name, "datatype": kind, "shape": shape}
            for name, kind, shape in self.model.inputs
        ]
        return MESSAGES["ModelMetadataResponse"](name="rows", inputs=inputs)

    async def _config(self, request: Any, context: Any) -> Any:
        await self._note("ModelConfig", context, request.name)
        config = {"max_batch_size": self.model.most_rows or 0}
        return MESSAGES["ModelConfigResponse"](config=config)

    async def _infer(self, request: Any, context: Any) -> Any:
        await self._note("ModelInfer", context, request.model_name)
        self.identities.append(request.id)
        fault = self._next_fault()
        if fault in _STATUSES:
            await context.abort(*_STATUSES[fault])
        if fault == "slow":
            await self._released.wait()
        inputs = {
            one.name: _values(one.datatype, raw).reshape(list(one.shape))
            for one, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        outputs = faulty(fault, self.model.compute(inputs))
        described = [
            {"name": name, "datatype": kind, "shape": values.shape}
            | ({"contents": {CONTENTS[kind]: values.ravel().tolist()}} if self._typed else {})
            for name, kind, values in outputs
        ]
        raw = [] if self._typed else [binary(values) for _, _, values in outputs]
        if fault == "nonsense":
            raw = [b"\0"]
        return MESSAGES["ModelInferResponse"](
            model_name="rows", id=request.id, outputs=described, raw_output_contents=raw
        )


def _values(kind: str, raw: bytes) -> Any:
    return texts(raw) if kind == BYTES else np.frombuffer(raw, DTYPES[kind])
