"""A receiver of OpenTelemetry's protocol over HTTP, which decodes what it gets."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_server import http_server


@dataclass
class OtlpReceiver:
    """`status` is its answer; with `hangs` it never answers. `requests`: path and headers."""

    status: int = 200
    hangs: bool = False
    spans: list[Any] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def __aenter__(self) -> Self:
        self._there = AsyncExitStack()
        self.url = await self._there.enter_async_context(http_server(self._take))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._there.aclose()

    async def until(self, spans: int) -> None:
        while len(self.spans) < spans:
            await self.came.wait()
            self.came.clear()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.requests.append((request.path, headers))
        if self.hangs:
            await asyncio.Event().wait()
        if self.status == 200:
            message = ExportTraceServiceRequest.FromString(body)
            for group in message.resource_spans:
                self.resources.append(values(group.resource.attributes))
                for scope in group.scope_spans:
                    self.spans += scope.spans
        self.came.set()
        return web.Response(status=self.status)


def values(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }
