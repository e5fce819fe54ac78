"""A server that speaks just enough S3 to misbehave on request; it checks no signature.

Rule: it takes keys as they come over the wire. Owner: the test that scripts it.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self
from urllib.parse import unquote

from aiohttp import web

MODIFIED = "Tue, 21 Oct 2025 07:28:00 GMT"


class Seen(NamedTuple):
    """A request, as far as tests care."""

    key: str
    headers: Mapping[str, str]
    version_id: str | None


class Refusal(NamedTuple):
    status: int
    code: str


class Cut:
    """Breaks the connection in the middle of the body."""


class Silence:
    """Takes the request and never answers."""


class S3Stub:
    """`async with S3Stub({"key": b"data"}) as stub:` one bucket of any name at `stub.url`."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)
        self.etag: str | None = '"etag-1"'
        self.version_id: str | None = None
        self.ignores_pins = False
        self.reads_range: Callable[[str], str] = str
        self.seen: list[Seen] = []
        self.next: deque[Refusal | Cut | Silence] = deque()
        self.url = ""
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        key = unquote(path.split("/", 2)[2])
        version = re.search(r"versionId=([^&]*)", query)
        self.seen.append(Seen(key, request.headers.copy(), version[1] if version else None))
        step = self.next.popleft() if self.next else None
        if isinstance(step, Refusal):
            return _refusal(*step)
        if isinstance(step, Silence):
            await asyncio.Event().wait()
        if key not in self.objects:
            return _refusal(404, "NoSuchKey")
        if request.headers.get("If-Match", self.etag) != self.etag and not self.ignores_pins:
            return _refusal(412, "PreconditionFailed")
        return await self._send(request, self.objects[key], cut=isinstance(step, Cut))

    async def _send(
        self, request: web.BaseRequest, data: bytes, *, cut: bool
    ) -> web.StreamResponse:
        headers: dict[str, str] = {"Last-Modified": MODIFIED}
        if self.etag is not None:
            headers["ETag"] = self.etag
        if self.version_id is not None:
            headers["x-amz-version-id"] = self.version_id
        said = self.reads_range(request.headers.get("Range", ""))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", said)
        start = int(asked[1]) if asked else 0
        stop = int(asked[2]) + 1 if asked and asked[2] else len(data)
        body = data[start:stop]
        if asked:
            headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(data)}"
        response = web.StreamResponse(status=206 if asked else 200, headers=headers)
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2] if cut else body)
        if cut and request.transport is not None:
            request.transport.close()
        return response


def _refusal(status: int, code: str) -> web.Response:
    document = f"<Error><Code>{code}</Code><Message>as the test says</Message></Error>"
    return web.Response(status=status, text=document, content_type="application/xml")
