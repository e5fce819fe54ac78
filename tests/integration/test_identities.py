"""A worker that shows who it is by tokens that end, to a broker that asks again all the time.

Rule: the broker's sessions last 3 s and the tokens 10 s, so each test sees several of both.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import product
from pathlib import Path

import pytest

from realstack.token_server import CLIENT, SECRET, Signer, TokenServer, token_server
from tests.support import secured
from tests.support.broker_stage import CLIENTS
from tests.support.secured import SESSION_MS, Authority
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

# While this many messages follow each other, each connection's session ends twice or more.
MESSAGES, PAUSE_S = 100, 0.1
# Of this a session's rest takes at most 3 s, and three tokens, a second apart, 2 s. The rest is for
# cores that many processes share.
SOON_S = 10.0
log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def kafka(
    services: Services, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    if services.torch_python is None:
        pytest.skip("the stack's programs run in containers here")
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("kafka")
        yield stack.enter_context(secured.kafka(authority, folder, signer.keys.as_uri()))


@pytest.fixture
async def server(signer: Signer) -> AsyncIterator[TokenServer]:
    async with token_server(signer) as running:
        yield running


@pytest.fixture
async def broker(kafka: dict[str, str]) -> AsyncIterator[Broker]:
    broker = Broker(kafka["plain"], "read_committed")
    await broker.start()
    yield broker
    await broker.stop()


def by_token(
    services: Services, kafka: dict[str, str], server: TokenServer, name: str, **changes: object
) -> tuple[Topics, dict[str, str]]:
    topics = Topics(*(f"{name}-{kind}" for kind in ("in", "out", "dlq")))
    keys: dict[str, object] = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka["oauth"],
        "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA__SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA__OAUTH__PROVIDER": "oidc",
        "KAFKA__OAUTH__TOKEN_URL": server.url,
        "KAFKA__OAUTH__CLIENT_ID": CLIENT,
        "KAFKA__OAUTH__CLIENT_SECRET": SECRET,
    }
    return topics, environment(services, topics, None, **(keys | changes))


async def publish_slowly(broker: Broker, topic: str) -> None:
    for number in range(MESSAGES):
        row = {"stream": "s", "inline": [[float(number)] * 16]}
        await broker.publish(topic, [Message(row, key=b"s")])
        await asyncio.sleep(PAUSE_S)


def refused_words(words: str) -> list[str]:
    return [line for line in words.splitlines() if '"error"' in line or "renewed" in line]


async def test_a_forged_token_is_refused(
    services: Services, kafka: dict[str, str], server: TokenServer
) -> None:
    server.mood = "forges"
    _, environ = by_token(services, kafka, server, "forged")
    ended = await penstock("topics", "create", environ=environ)
    assert ended.code == 2, ended.stderr
    assert "invalid_token" in ended.stderr
    assert SECRET not in ended.stderr


async def test_sessions_that_end_cost_no_connection(
    services: Services, kafka: dict[str, str], signer: Signer, broker: Broker
) -> None:
    """Each client by each guarantee, at the same time, as each of them mostly waits."""
    now_s = asyncio.get_running_loop().time

    async def costs_none(topics: Topics, server: TokenServer, environ: dict[str, str]) -> None:
        created = await penstock("topics", "create", "--partitions", "1", environ=environ)
        assert created.code == 0, created.stderr
        server.asked = 0
        began_s = now_s()
        async with running_worker(environ) as worker:
            await worker.ready(partitions=1)
            await publish_slowly(broker, topics.input)
            await broker.until_committed(topics.input, topics.input, {0: MESSAGES})
            assert await worker.stop() == 0, worker.said
            assert refused_words(worker.said) == [], worker.said
            assert SECRET not in worker.said
        # One token for all clients of the process, and a new one when four fifths of it are over.
        assert 2 <= server.asked <= 6 + (now_s() - began_s) / (0.8 * server.life_s)

    of_each: list[Topics] = []
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for client, guarantee in product(CLIENTS, ["at_least_once", "exactly_once"]):
            server = await stack.enter_async_context(token_server(signer))
            changes = {"KAFKA__CLIENT": client, "DELIVERY__GUARANTEE": guarantee}
            name = f"{client}-{guarantee}"
            topics, environ = by_token(services, kafka, server, name, **changes)
            of_each.append(topics)
            tasks.create_task(costs_none(topics, server, environ))
    for topics in of_each:
        (records,) = (await broker.records(topics.output)).values()
        answered = [record.document["source"]["offset"] for record in records]
        assert answered == list(range(MESSAGES)), topics


async def test_a_token_server_that_is_away_ends_nobody(
    services: Services, kafka: dict[str, str], signer: Signer, broker: Broker
) -> None:
    """Both clients at the same time."""

    async def ends_nobody(topics: Topics, server: TokenServer, environ: dict[str, str]) -> None:
        created = await penstock("topics", "create", "--partitions", "1", environ=environ)
        assert created.code == 0, created.stderr
        async with running_worker(environ) as worker:
            await worker.ready(partitions=1)
            server.mood = "ill"
            asked = server.asked

            async def asked_again() -> bool:
                return server.asked > asked + 1

            await until(asked_again, lambda: worker.said)
            # By then each token and each session have ended.
            await asyncio.sleep(server.life_s + SESSION_MS / 1000)
            _, status = await worker.get("/api/status")
            outages = [outage["service"] for outage in json.loads(status)["outages"]]
            assert "token provider" in outages
            server.mood = "well"
            await publish_slowly(broker, topics.input)
            await broker.until_committed(topics.input, topics.input, {0: MESSAGES})
            assert await worker.stop() == 0, worker.said

    of_each: list[Topics] = []
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for client in CLIENTS:
            server = await stack.enter_async_context(token_server(signer))
            name = f"away-{client}"
            topics, environ = by_token(services, kafka, server, name, KAFKA__CLIENT=client)
            of_each.append(topics)
            tasks.create_task(ends_nobody(topics, server, environ))
    for topics in of_each:
        (records,) = (await broker.records(topics.output)).values()
        # The group may have expelled the worker, whose last answers are then repeated.
        answered = dict.fromkeys(record.document["source"]["offset"] for record in records)
        assert list(answered) == list(range(MESSAGES)), topics


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("refuses", ["the broker", "the token server"])
async def test_credentials_that_are_refused_in_mid_run_end_the_worker(
    services: Services, kafka: dict[str, str], server: TokenServer, client: str, refuses: str
) -> None:
    name = f"refused-{client}-{refuses.replace(' ', '-')}"
    moods = {"the broker": "forges", "the token server": "knows nobody"}
    _, environ = by_token(services, kafka, server, name, KAFKA__CLIENT=client)
    created = await penstock("topics", "create", "--partitions", "1", environ=environ)
    assert created.code == 0, created.stderr
    async with running_worker(environ) as worker:
        await worker.ready(partitions=1)
        worker.may_end()
        asked, server.mood = server.asked, moods[refuses]

        async def was_refused() -> bool:
            return server.asked > asked

        await until(was_refused, lambda: worker.said)
        refused_s = asyncio.get_running_loop().time()
        assert await worker.ended() == 2, worker.said
        # The provider's refusal counts when the former token ends.
        left_s = server.life_s * 0.2 if refuses == "the token server" else 0.0
        took_s = asyncio.get_running_loop().time() - refused_s - left_s
        log.info("%s by %s: ended after %.1f s", refuses, client, took_s)
        assert took_s < SOON_S
        word = "invalid_token" if refuses == "the broker" else "no such client"
        assert word in worker.said.splitlines()[-1] or word in worker.said.splitlines()[-2]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_password_that_is_rotated_costs_no_answer(
    services: Services, kafka: dict[str, str], broker: Broker, tmp_path: Path, client: str
) -> None:
    file, topics = tmp_path / "password", Topics(*(f"rotated-{client}-{n}" for n in "iod"))
    file.write_text(secured.PASSWORD)
    keys: dict[str, object] = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka["sasl"],
        "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA__SASL_USERNAME": secured.USER,
        "KAFKA__SASL_PASSWORD_FILE": file,
        "KAFKA__CLIENT": client,
    }
    environ = environment(services, topics, None, **keys)
    created = await penstock("topics", "create", "--partitions", "1", environ=environ)
    assert created.code == 0, created.stderr
    try:
        async with running_worker(environ) as worker:
            await worker.ready(partitions=1)
            await asyncio.to_thread(secured.change_password, kafka["plain"], "another-password")
            file.write_text("another-password")
            await publish_slowly(broker, topics.input)
            await broker.until_committed(topics.input, topics.input, {0: MESSAGES})
            assert await worker.stop() == 0, worker.said
    finally:
        await asyncio.to_thread(secured.change_password, kafka["plain"], secured.PASSWORD)
    (records,) = (await broker.records(topics.output)).values()
    answered = dict.fromkeys(record.document["source"]["offset"] for record in records)
    assert list(answered) == list(range(MESSAGES))
