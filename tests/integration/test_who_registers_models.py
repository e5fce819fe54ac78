"""A page in a browser posts to the addresses of TorchServe on this machine: no archive is fetched,
and no code is run, as scripts/stack starts the server and as docker-compose.yml does.
"""

import http.client
import re
import socket
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.parse import quote

import pytest

from penstock import config
from penstock.adapters.model_servers.torchserve import ServerBatching, server_batching
from realstack.model_servers import SETTINGS, SOCKET, TorchServe
from tests.support.secured import listens, ports, running

pytestmark = pytest.mark.stack

PORTS = (
    "torchserve", "torchserve_metrics", "torchserve_grpc", "torchserve_grpc_management",
    "torchserve_worker", "management",
)  # fmt: skip
# What a page's script may send without asking the server first, after its name was given our
# address (DNS rebinding), or plainly from another site.
HEADERS = [
    {"Origin": "http://evil.example", "Content-Type": "text/plain"},
    {"Origin": "http://evil.example", "Host": "evil.example"},
]


class Evil(NamedTuple):
    url: str
    fetched: list[str]


class Started(NamedTuple):
    ports: dict[str, int]
    folder: Path


@pytest.fixture
def evil() -> Iterator[Evil]:
    """The site that has the archive."""
    fetched: list[str] = []

    class Archive(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fetched.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Archive)
    Thread(target=server.serve_forever, daemon=True).start()
    yield Evil(f"http://127.0.0.1:{server.server_port}/evil.mar", fetched)
    server.shutdown()
    server.server_close()


@contextmanager
def torchserve(folder: Path, *, as_in_docker: bool) -> Iterator[Started]:
    server = TorchServe()
    server.build()
    chosen = ports(*PORTS)
    launch = server.configure(folder, chosen)
    settings = folder / "config.properties"
    ours = settings.read_text()
    if as_in_docker:  # the file as it is, but for its addresses
        plain = (SETTINGS / "config.properties").read_text()
        addresses = re.findall(
            r"^(?:(?!management).)*(?:address|port|store)=.*\n", ours, re.MULTILINE
        )
        addresses.append(f"management_address=http://127.0.0.1:{chosen['management']}\n")
        settings.write_text(plain + "".join(addresses))
    url = f"http://127.0.0.1:{chosen['torchserve']}/predictions/rows"

    def answers() -> bool:
        request = urllib.request.Request(url, b"[]", {"Content-Type": "application/json"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    with running(launch.argv, folder, launch.env, answers):
        yield Started(chosen, folder)


def posted(connection: http.client.HTTPConnection, url: str, headers: dict[str, str]) -> int | None:
    """The status of the answer; None: there was none."""
    path = f"/models?url={quote(url, safe='')}&model_name=evil&initial_workers=1&synchronous=true"
    try:
        connection.request("POST", path, b"", headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class BySocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def listening(started: Started) -> list[int]:
    return [port for port in started.ports.values() if listens(port)]


@pytest.mark.parametrize("as_in_docker", [False, True], ids=["the stack", "compose"])
async def test_no_page_has_an_archive_fetched_or_run(
    evil: Evil, tmp_path: Path, as_in_docker: bool
) -> None:
    started_from = tmp_path / "evil.mar"  # a page may also have the browser save its archive
    started_from.write_bytes((TorchServe().store / "rows.mar").read_bytes())
    with torchserve(tmp_path, as_in_docker=as_in_docker) as started:
        for port in listening(started):
            for headers in HEADERS:
                for url in (evil.url, started_from.as_uri(), "rows.mar"):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                    status = posted(connection, url, headers)
                    assert status is None or status >= 400, (port, headers, url)
        assert evil.fetched == []
        settings = config.Model(management_url=f"unix://{tmp_path / SOCKET}")
        if as_in_docker:
            address = f"http://127.0.0.1:{started.ports['management']}"
            settings = config.Model(management_url=address)
        # The worker still finds how the server batches.
        assert await server_batching(settings) == ServerBatching(1, 100, 1, 1000, 120)


async def test_the_user_registers_archives_of_this_machine_alone(
    evil: Evil, tmp_path: Path
) -> None:
    archive = tmp_path / f"own-{uuid.uuid4().hex}.mar"
    archive.write_bytes((TorchServe().store / "rows.mar").read_bytes())
    with torchserve(tmp_path, as_in_docker=False):
        path = tmp_path / SOCKET
        assert path.stat().st_mode & 0o022 == 0  # to connect is to write: nobody else may
        assert posted(BySocket(path), evil.url, {}) == 404
        assert evil.fetched == []
        try:
            assert posted(BySocket(path), archive.as_uri(), {}) == 200
        finally:  # TorchServe has copied it into its store, which all of this user's have
            (TorchServe().store / archive.name).unlink(missing_ok=True)
