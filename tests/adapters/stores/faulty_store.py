"""A store on raw sockets that answers exactly as its test says: any status, any header left out,
doubled or contradicted, bodies cut anywhere, slow or silent.

Rule: it serves one object, under whatever name, and honours Range and If-Match unless its test
says otherwise. A fault strikes each request that it is for. Owner: the test.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

ETAG = '"etag-1"'
MODIFIED = "Tue, 21 Oct 2025 07:28:00 GMT"
# Pauses of a slow answer, far shorter than the patience that tests give a client.
PIECES, PIECE_S = 10, 0.02

# Which requests a fault is for: those from the object's beginning, or those for the rest of one.
Request = Literal["first", "rest"]


@dataclass(frozen=True)
class Fault:
    """`status`, None: as it should be. `code`: S3's own word, in an XML body. `headers` replaces
    values, None leaves one out; `doubled` sends a header a second time with this value.
    `cut_tenth`: the body ends there and the connection with it. `silent`: nothing is sent after it.
    `endless`: more is sent after it, without end.
    """

    request: Request = "first"
    status: int | None = None
    code: str = ""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    doubled: Mapping[str, str] = field(default_factory=dict)
    cut_tenth: int | None = None
    silent: bool = False
    endless: bool = False
    slow: bool = False
    ignores_range: bool = False


class FaultyStore:
    """`async with FaultyStore(data, faults) as store:` and requests to `store.url`: the key of an
    object is the index of its fault. A transfer from the beginning is cut in its middle, so that
    there is a rest to ask for, when the fault is for that.
    """

    def __init__(self, data: bytes, faults: Sequence[Fault]) -> None:
        self.url = ""
        self._data = data
        self._faults = faults
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if not await self._answer(head, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        asked = re.search(r"\r\nrange: bytes=(\d+)-", head, re.IGNORECASE)
        start = int(asked[1]) if asked else 0
        is_head = head.startswith("HEAD")
        match = re.match(r"(?:GET|HEAD) /\w+/(\d+)", head)
        fault = self._faults[int(match[1])] if match else Fault(status=404)
        if is_head:
            fault = Fault()
        elif (asked is not None) != (fault.request == "rest"):
            fault = Fault() if asked else Fault(cut_tenth=5)
        is_part = asked is not None and not fault.ignores_range
        body = self._data[start:] if is_part else self._data
        status = fault.status or (206 if is_part else 200)
        headers: dict[str, str | None] = {"ETag": ETAG, "Last-Modified": MODIFIED}
        if fault.status is not None and fault.status not in (200, 206):
            body = _document(fault.code)
            headers["Content-Type"] = "application/xml"
        elif status == 206:
            headers["Content-Range"] = f"bytes {start}-{len(self._data) - 1}/{len(self._data)}"
        headers |= {"Content-Length": str(len(body)), **fault.headers}
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        lines += [f"{name}: {value}" for name, value in fault.doubled.items()]
        sent = body if fault.cut_tenth is None else body[: len(body) * fault.cut_tenth // 10]
        if not fault.silent or sent:
            start_line = f"HTTP/1.1 {status} Said\r\n"
            writer.write((start_line + "\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await _write(writer, b"" if is_head else sent, slow=fault.slow)
        if fault.silent:
            await asyncio.Event().wait()
        while fault.endless:
            await _write(writer, self._data, slow=False)
        return fault.cut_tenth is None and "Content-Length" not in fault.headers


async def _write(writer: asyncio.StreamWriter, sent: bytes, *, slow: bool) -> None:
    pieces = PIECES if slow else 1
    for number in range(pieces):
        writer.write(sent[len(sent) * number // pieces : len(sent) * (number + 1) // pieces])
        await writer.drain()
        if slow:
            await asyncio.sleep(PIECE_S)


def _document(code: str) -> bytes:
    return b"" if not code else b"<Error><Code>%b</Code></Error>" % code.encode()
