"""Twenty streams at 20 Hz, while tokens, sessions and keys end, and their server has troubles.

Run with IDENTITY_SECONDS: for how long rows are announced, or for how long a trouble lasts, around
which they are announced for a minute; and with --log-cli-level=INFO, which shows the latencies.
Tokens last 10 s, and the broker asks each connection again after 5 s.
"""

import asyncio
import functools
import http.server
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.adapters.kafka.identity.tokens import LONGEST_PAUSE_S
from realstack.token_server import LIFE_S, SECRET, Signer, TokenServer, token_server
from tests.integration.test_identities import by_token
from tests.support import secured
from tests.support.json_server import json_server
from tests.support.secured import Authority
from tests.support.services import Services
from tests.support.steady_streams import PARTITIONS, Verdict, steady_streams
from tests.support.worker import Worker, penstock, running_worker

log = logging.getLogger(__name__)

SECONDS = float(os.environ.get("IDENTITY_SECONDS", "0"))
# Before and behind a trouble.
AROUND_S = 30.0
SESSION_MS = 5_000
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
# librdkafka takes the next token when four fifths of the present one are over. Of one of 10 s there
# is then a session of a second, which librdkafka would renew sooner than a broker allows; so it
# connects anew.
TOO_YOUNG = "Request not valid in current SASL state"
# How long a client's certificate lasts: a worker must have begun by then, on a busy machine, too.
CERTIFICATE_S = 60.0
# What is left when all is sent, after a trouble of some minutes.
REST_S = 120.0
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="takes minutes: IDENTITY_SECONDS says how many seconds"),
    pytest.mark.timeout(2 * SECONDS + 600),
]
BOTH = [
    (client, guarantee)
    for client in ("aiokafka", "confluent")
    for guarantee in ("at_least_once", "exactly_once")
]


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The folder's files, by HTTP; its URL."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def kafka(
    signer: Signer, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    with serving(signer.keys.parent) as url:
        keys, folder = f"{url}/{signer.keys.name}", tmp_path_factory.mktemp("kafka")
        with secured.kafka(authority, folder, keys, session_ms=SESSION_MS) as addresses:
            yield addresses


@pytest.fixture
async def server(signer: Signer) -> AsyncIterator[TokenServer]:
    async with token_server(signer) as running:
        yield running


@pytest.fixture
async def model() -> AsyncIterator[str]:
    async with json_server("/rows", lambda rows: [0] * len(rows)) as running:
        yield f"{running.url}/rows"


Trouble = Callable[[TokenServer, Worker], Awaitable[None]]


async def observed(
    services: Services,
    kafka: dict[str, str],
    server: TokenServer,
    model: str,
    name: str,
    changes: Mapping[str, object],
    trouble: Trouble | None = None,
) -> tuple[Verdict, str]:
    """The answers, and what the worker said from its first assignment on."""
    keys: dict[str, object] = {
        "OBJECTS__ENDPOINT_URL": f"file://{server.signer.keys.parent}",  # no object is fetched
        "MODEL__URL": model,
        "MODEL__PROTOCOL": "http",
    }
    topics, environ = by_token(services, kafka, server, name, **(keys | dict(changes)))
    created = await penstock("topics", "create", "--partitions", f"{PARTITIONS}", environ=environ)
    assert created.code == 0, created.stderr
    async with (
        steady_streams(kafka["plain"], topics) as streams,
        running_worker(environ) as worker,
    ):
        await worker.ready(partitions=PARTITIONS)
        before = len(worker.said)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(streams.run(SECONDS if trouble is None else SECONDS + 2 * AROUND_S))
            if trouble is not None:
                await asyncio.sleep(AROUND_S)
                await trouble(server, worker)
        await streams.answered(REST_S)
        assert await worker.stop() == 0, worker.said
        log.info("%s: %s; tokens asked %d times", name, streams.verdict(), server.asked)
        assert SECRET not in worker.said
        return streams.verdict(), worker.said[before:]


def told(words: str, *levels: str) -> list[str]:
    return [line for line in words.splitlines() if any(f'"{level}"' in line for level in levels)]


@pytest.mark.parametrize(("client", "guarantee"), BOTH)
@pytest.mark.parametrize("identity", ["tokens", "nobody"])
async def test_sessions_and_tokens_that_end_are_not_noticed(
    services: Services,
    kafka: dict[str, str],
    server: TokenServer,
    model: str,
    client: str,
    guarantee: str,
    identity: str,
) -> None:
    changes = {"KAFKA__CLIENT": client, "DELIVERY__GUARANTEE": guarantee}
    if identity == "nobody":  # for comparison
        changes |= {
            "KAFKA__BOOTSTRAP_SERVERS": kafka["plain"],
            "KAFKA__SECURITY_PROTOCOL": "PLAINTEXT",
        }
    name = f"{identity}-{client}-{guarantee}"
    verdict, output = await observed(services, kafka, server, model, name, changes)
    assert verdict[:4] == (verdict.sent, 0, 0, 0), verdict
    assert told(output, "error", "critical") == []
    # Others may say that the machine is busy.
    clients = ("aiokafka", "librdkafka", "penstock.adapters")
    warned = [line for line in told(output, "warning") if any(map(line.__contains__, clients))]
    assert [line for line in warned if client == "aiokafka" or TOO_YOUNG not in line] == []
    if identity == "tokens":
        assert server.asked <= SECONDS / (0.7 * LIFE_S) + 8


async def away(server: TokenServer, worker: Worker) -> None:
    await _in_mood(server, worker, "away")


async def ill(server: TokenServer, worker: Worker) -> None:
    await _in_mood(server, worker, "ill")


async def _in_mood(server: TokenServer, worker: Worker, mood: str) -> None:
    asked, server.mood = server.asked, mood
    await asyncio.sleep(SECONDS)
    _, status = await worker.get("/api/status")
    _, metrics = await worker.get("/metrics")
    server.mood = "well"
    assert "token provider" in [outage["service"] for outage in json.loads(status)["outages"]]
    lines = [line for line in metrics.splitlines() if 'service="token provider"' in line]
    assert [line for line in lines if line.endswith(" 1.0") and 'kind="away"' in line], lines
    log.info("asked %d times in %g s", server.asked - asked, SECONDS)
    assert server.asked - asked <= 8 + SECONDS / LONGEST_PAUSE_S


async def slow(server: TokenServer, _: Worker) -> None:
    server.answers_after_s = 9.0
    await asyncio.sleep(SECONDS)
    server.answers_after_s = 0.0


async def key_rotated(server: TokenServer, _: Worker) -> None:
    server.signer.rotate()
    await asyncio.sleep(SECONDS)


@pytest.mark.parametrize(("client", "guarantee"), BOTH)
@pytest.mark.parametrize("trouble", [away, ill, slow, key_rotated])
async def test_troubles_of_the_token_server_cost_no_answer(
    services: Services,
    kafka: dict[str, str],
    server: TokenServer,
    model: str,
    client: str,
    guarantee: str,
    trouble: Trouble,
) -> None:
    changes = {"KAFKA__CLIENT": client, "DELIVERY__GUARANTEE": guarantee}
    # No connection outlives its token, so the brokers are away for as long.
    changes["KAFKA__TIMEOUT_MS"] = f"{1000 * (SECONDS + 2 * AROUND_S):.0f}"
    name = f"{trouble.__name__}-{client}-{guarantee}"
    verdict, output = await observed(services, kafka, server, model, name, changes, trouble)
    assert (verdict.lost, verdict.disordered) == (0, 0), verdict
    if guarantee == "exactly_once":
        assert verdict.doubled == 0, verdict
    log.info("%s", "\n".join(told(output, "error", "warning")))


@pytest.mark.skipif(not FAKETIME.exists(), reason="Debian's faketime is not installed")
@pytest.mark.parametrize("ahead_s", [-60, 60])
async def test_clocks_may_be_apart(
    services: Services,
    kafka: dict[str, str],
    server: TokenServer,
    model: str,
    ahead_s: int,
) -> None:
    """The worker's clock against those of the broker and of the token server."""
    changes: dict[str, object] = {"DELIVERY__GUARANTEE": "exactly_once"}
    os.environ |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{ahead_s:+d}"}
    try:
        verdict, output = await observed(services, kafka, server, model, f"clock{ahead_s}", changes)
    finally:
        del os.environ["LD_PRELOAD"], os.environ["FAKETIME"]
    assert verdict[:4] == (verdict.sent, 0, 0, 0), verdict
    assert told(output, "error") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may cut the connections of others")
@pytest.mark.parametrize(("client", "guarantee"), BOTH)
async def test_a_certificate_is_replaced_before_it_ends(
    services: Services,
    kafka: dict[str, str],
    authority: Authority,
    server: TokenServer,
    model: str,
    client: str,
    guarantee: str,
) -> None:
    ends_s = time.time() + CERTIFICATE_S
    name = f"renewed-{client}-{guarantee}"
    files = authority.sign_for(CERTIFICATE_S, name)

    async def replaced(_: TokenServer, worker: Worker) -> None:
        for new, old in zip(authority.sign(f"new-{name}"), files, strict=True):
            shutil.copy(new, old)
        await asyncio.sleep(ends_s - time.time())
        port = kafka["mutual"].rpartition(":")[2]
        cut = ["ss", "--kill", "state", "established", f"( sport = :{port} )"]
        await asyncio.to_thread(subprocess.run, cut, check=True, capture_output=True)
        await asyncio.sleep(SECONDS)

    changes = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka["mutual"],
        "KAFKA__SECURITY_PROTOCOL": "SSL",
        "KAFKA__SSL_CAFILE": authority.cafile,
        "KAFKA__SSL_CERTFILE": files[0],
        "KAFKA__SSL_KEYFILE": files[1],
        "KAFKA__CLIENT": client,
        "DELIVERY__GUARANTEE": guarantee,
    }
    verdict, output = await observed(services, kafka, server, model, name, changes, replaced)
    assert (verdict.lost, verdict.disordered) == (0, 0), verdict
    if guarantee == "exactly_once":
        assert verdict.doubled == 0, verdict
    log.info("%s", "\n".join(told(output, "error", "warning")))
