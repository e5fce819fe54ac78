"""TLS and credentials towards the real Kafka, MinIO and TorchServe, the right ones and wrong ones.

Wrong ones end a start with exit code 2 and one message that names the key and holds none of them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from penstock import config
from penstock.adapters.kafka.client import telling_refusals
from penstock.adapters.model_servers.torchserve import TorchServeModel
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal, first_cause
from penstock.ports import Location
from realstack.minio import s3_client
from realstack.token_server import Signer
from tests.integration.test_scenes import LISTED, predictions, scenes_environment
from tests.support import secured
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.secured import PASSWORD, STORE_KEY, STORE_SECRET, USER, Authority
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker
from tests.support.waiting import until
from tests.support.worker import Ended, environment, penstock, running_worker

WRONG = "a-wrong-one-nobody-may-see"
SECRETS = (PASSWORD, STORE_KEY, STORE_SECRET, WRONG)
BUCKET = "secured"


@pytest.fixture(scope="module")
def cleanup(services: Services) -> Iterator[ExitStack]:
    if services.torch_python is None:
        pytest.skip("the stack's programs run in containers here")
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Nobody trusts it."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """The broker takes its tokens."""
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def kafka(
    cleanup: ExitStack,
    authority: Authority,
    signer: Signer,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("kafka")
    return cleanup.enter_context(secured.kafka(authority, folder, signer.keys.as_uri()))


@pytest.fixture(scope="module")
def store(
    cleanup: ExitStack, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A MinIO with one object, `a.csv`."""
    url = cleanup.enter_context(secured.minio(authority, tmp_path_factory.mktemp("minio")))
    client = s3_client(url, STORE_KEY, STORE_SECRET, verify=str(authority.cafile))
    client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key="a.csv", Body=csv(random_rows(5)))
    client.close()
    return url


@pytest.fixture(scope="module")
def model(
    cleanup: ExitStack, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    return cleanup.enter_context(
        secured.torchserve(authority, tmp_path_factory.mktemp("torchserve"))
    )


@pytest.fixture
async def broker(kafka: dict[str, str]) -> AsyncIterator[Broker]:
    """Over the listener that asks for nothing."""
    broker = Broker(kafka["plain"], "read_uncommitted")
    await broker.start()
    yield broker
    await broker.stop()


def settings(section: str, **keys: object) -> dict[str, str]:
    return {f"PENSTOCK_{section}__{key.upper()}": str(value) for key, value in keys.items()}


def by_password(
    kafka: dict[str, str], authority: Authority, mechanism: str, listener: str
) -> dict[str, str]:
    protocol = "SASL_SSL" if listener == "secure" else "SASL_PLAINTEXT"
    return settings(
        "KAFKA",
        bootstrap_servers=kafka[listener],
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        sasl_username=USER,
        sasl_password=PASSWORD,
        ssl_cafile=authority.cafile,
    )


def by_certificate(
    kafka: dict[str, str], authority: Authority, signed_by: Authority
) -> dict[str, str]:
    certificate, key = signed_by.sign("client")
    return settings(
        "KAFKA",
        bootstrap_servers=kafka["mutual"],
        security_protocol="SSL",
        ssl_cafile=authority.cafile,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def at_store(store: str, authority: Authority, **changes: object) -> dict[str, str]:
    keys: dict[str, object] = {"key": STORE_KEY, "secret": STORE_SECRET}
    return settings("OBJECTS", endpoint_url=store, ssl_cafile=authority.cafile, **(keys | changes))


def at_model(model: tuple[str, Path], authority: Authority) -> dict[str, str]:
    url, keys = model
    return settings("MODEL", url=url, token_file=keys, ssl_cafile=authority.cafile)


def assert_refused(ended: Ended, *words: str) -> None:
    """By a message of up to three lines, the only ones that are not of the log."""
    assert ended.code == 2, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert lines[0].startswith("penstock: "), ended.stderr
    assert len(lines) <= 3, ended.stderr
    assert all(word in " ".join(lines) for word in words), ended.stderr
    message = ended.stderr + ended.stdout.decode()
    assert not [secret for secret in SECRETS if secret in message], message


NO_TOPICS = Topics("none", "none-out", "none-dlq")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["sasl", "secure"])
async def test_kafka_by_password(
    services: Services, kafka: dict[str, str], authority: Authority, mechanism: str, listener: str
) -> None:
    topics = Topics(*(f"{mechanism}-{listener}-{name}" for name in ("in", "out", "dlq")))
    environ = environment(services, topics) | by_password(kafka, authority, mechanism, listener)
    ended = await penstock("topics", "create", environ=environ)
    assert ended.code == 0, ended.stderr
    environ |= settings("KAFKA", sasl_password=WRONG)
    assert_refused(await penstock("topics", "create", environ=environ), "kafka.sasl_password")


@pytest.mark.parametrize("wrong", ["password", "certificate", "nothing"])
async def test_when_kafka_answers_no_more_a_refusal_of_our_credentials_is_told(
    kafka: dict[str, str], authority: Authority, stranger: Authority, wrong: str
) -> None:
    """As after a change of the password or at the end of a certificate, when a client only sees
    that its connections break.
    """
    environ = by_password(kafka, authority, "SCRAM-SHA-512", "secure")
    if wrong == "certificate":
        environ = by_certificate(kafka, authority, stranger)
    if wrong == "password":
        environ |= settings("KAFKA", sasl_password=WRONG)
    cfg = config.load(None, environ)
    with pytest.raises((Fatal, ExceptionGroup)) as caught:
        async with telling_refusals(cfg.kafka), asyncio.TaskGroup() as tasks:
            tasks.create_task(_nobody_answers())
    found: BaseException = caught.value
    error = first_cause(found) if isinstance(found, BaseExceptionGroup) else found
    assert isinstance(error, Fatal)
    code, word = {
        "password": (EXIT_USAGE, "kafka.sasl_password"),
        "certificate": (EXIT_USAGE, "kafka.ssl_certfile"),
        "nothing": (EXIT_UNREACHABLE, "no answer"),
    }[wrong]
    assert error.exit_code == code
    assert word in str(error)
    assert WRONG not in str(error)


async def _nobody_answers() -> None:
    raise Fatal("no answer for 120 s", exit_code=EXIT_UNREACHABLE)


async def test_kafka_whose_certificate_is_not_trusted(
    services: Services, kafka: dict[str, str], stranger: Authority
) -> None:
    environ = environment(services, NO_TOPICS) | by_password(kafka, stranger, "PLAIN", "secure")
    assert_refused(await penstock("run", environ=environ), "certificate", "kafka.ssl_cafile")


@pytest.mark.parametrize("shown", ["a stranger's", "none"])
async def test_kafka_that_does_not_trust_our_certificate(
    services: Services,
    kafka: dict[str, str],
    authority: Authority,
    stranger: Authority,
    shown: str,
) -> None:
    environ = environment(services, NO_TOPICS) | by_certificate(kafka, authority, stranger)
    if shown == "none":
        environ |= settings("KAFKA", ssl_certfile="", ssl_keyfile="")
    assert_refused(await penstock("run", environ=environ), "kafka.ssl_certfile")


@pytest.mark.parametrize(
    ("client", "mechanism", "guarantee", "kafka_client"),
    [
        ("obstore", None, "at_least_once", "aiokafka"),
        ("obstore", None, "at_least_once", "confluent"),
        ("obstore", "PLAIN", "at_least_once", "aiokafka"),
        ("obstore", "SCRAM-SHA-256", "exactly_once", "confluent"),
        ("s3fs", "SCRAM-SHA-512", "exactly_once", "aiokafka"),
    ],
)
async def test_a_worker_on_services_that_all_ask_for_credentials(
    services: Services,
    kafka: dict[str, str],
    store: str,
    model: tuple[str, Path],
    authority: Authority,
    broker: Broker,
    client: str,
    mechanism: str | None,
    guarantee: str,
    kafka_client: str,
) -> None:
    """And the commands beside it, each with clients of its own."""
    names = (f"{client}-{mechanism}-{kafka_client}-{name}" for name in ("in", "out", "dlq"))
    topics = Topics(*names)
    environ = environment(services, topics, DELIVERY__GUARANTEE=guarantee)
    environ |= settings("KAFKA", client=kafka_client)
    if mechanism is None:
        environ |= by_certificate(kafka, authority, authority)
    else:
        environ |= by_password(kafka, authority, mechanism, "secure")
    environ |= at_store(store, authority, client=client) | at_model(model, authority)
    created = await penstock("topics", "create", "--partitions", "1", environ=environ)
    assert created.code == 0, created.stderr
    examined = await penstock("doctor", environ=environ)
    assert examined.code == 0, examined.stdout
    async with running_worker(environ) as worker:
        await worker.ready(partitions=1)
        announced = await penstock("produce", f"s3://{BUCKET}/a.csv", environ=environ)
        assert announced.code == 0, announced.stderr
        await broker.until_committed(topics.input, topics.input, {0: 1})
        assert await worker.stop() == 0, worker.said
        secrets = [*SECRETS, secured.token(model[1])]
        assert not [secret for secret in secrets if secret in worker.said], worker.said
    (records,) = (await broker.records(topics.output)).values()
    assert [record.document["prediction"] is not None for record in records] == [True] * 5
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged.stderr


@pytest.mark.parametrize(
    ("engine", "mechanism"), [("penstock", "SCRAM-SHA-512"), ("faust", None), ("faust", "PLAIN")]
)
async def test_scenes_of_a_broker_that_asks_for_credentials(
    services: Services,
    kafka: dict[str, str],
    authority: Authority,
    broker: Broker,
    engine: str,
    mechanism: str | None,
) -> None:
    name = f"scenes-{engine}-{mechanism}"
    topics = Topics(*(f"{name}-{each}" for each in ("in", "out", "dlq")))
    environ = scenes_environment(services, topics, topics.output, LISTED, SCENES__ENGINE=engine) | (
        by_certificate(kafka, authority, authority)
        if mechanism is None
        else by_password(kafka, authority, mechanism, "secure")
    )
    scenes = environ["PENSTOCK_SCENES__TOPIC"]
    for more in ((), ("--scenes",)):
        created = await penstock("topics", "create", *more, "--partitions", "4", environ=environ)
        assert created.code == 0, created.stderr
    async with running_worker(environ, command="scenes") as worker:
        await broker.publish(topics.output, predictions(topics.input, range(2)))

        async def are_there() -> bool:
            return sum((await broker.ends(scenes)).values()) > 0

        await until(are_there, lambda: f"scenes: {worker.said}")
        assert await worker.stop() == 0, worker.said
        assert not [secret for secret in SECRETS if secret in worker.said], worker.said


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secret": WRONG}, ("SignatureDoesNotMatch", "objects.secret")),
        ({"key": WRONG}, ("InvalidAccessKeyId", "objects.key")),
        ({"ssl_cafile": ""}, ("certificate", "objects.ssl_cafile")),
    ],
)
async def test_a_store_with_wrong_credentials(
    services: Services,
    topics: Topics,
    store: str,
    authority: Authority,
    client: str,
    changes: dict[str, str],
    words: tuple[str, ...],
) -> None:
    environ = environment(services, topics) | at_store(store, authority, client=client)
    environ |= settings("OBJECTS", **changes)
    assert_refused(await penstock("run", environ=environ), *words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token_file": "", "token": WRONG}, ("model.token",)),
        ({"token_file": ""}, ("model.token",)),
        ({"ssl_cafile": ""}, ("certificate", "model.ssl_cafile")),
    ],
)
async def test_a_model_server_with_wrong_credentials(
    services: Services,
    topics: Topics,
    model: tuple[str, Path],
    authority: Authority,
    changes: dict[str, str],
    words: tuple[str, ...],
) -> None:
    environ = environment(services, topics) | at_model(model, authority)
    environ |= settings("MODEL", **changes)
    assert_refused(await penstock("run", environ=environ), *words)


async def test_a_model_server_that_is_not_trusted_is_not_ready(model: tuple[str, Path]) -> None:
    client = TorchServeModel(config.Model(url=model[0], token_file=str(model[1])))
    assert not await client.ready()
    await client.aclose()


@pytest.mark.parametrize("section", ["KAFKA", "OBJECTS", "MODEL"])
async def test_a_certificate_for_another_host_is_not_trusted(
    services: Services,
    topics: Topics,
    kafka: dict[str, str],
    store: str,
    model: tuple[str, Path],
    authority: Authority,
    section: str,
) -> None:
    environ = (
        environment(services, topics)
        | {
            "KAFKA": by_password(kafka, authority, "PLAIN", "secure"),
            "OBJECTS": at_store(store, authority),
            "MODEL": at_model(model, authority),
        }[section]
    )
    for name in ("KAFKA__BOOTSTRAP_SERVERS", "OBJECTS__ENDPOINT_URL", "MODEL__URL"):
        if name.startswith(section):
            environ[f"PENSTOCK_{name}"] = environ[f"PENSTOCK_{name}"].replace(
                "127.0.0.1", "localhost"
            )
    assert_refused(
        await penstock("run", environ=environ), "certificate", f"{section.lower()}.ssl_cafile"
    )


async def test_small_objects_are_read_by_the_lighter_client_over_tls_too(
    store: str, authority: Authority
) -> None:
    by_keys = config.Objects(
        endpoint_url=store,
        key=STORE_KEY,
        secret=STORE_SECRET,
        ssl_cafile=str(authority.cafile),
    )
    # A request to the client behind it is refused.
    behind = ObstoreObjects(msgspec.structs.replace(by_keys, secret=WRONG))
    objects = DirectObjects(behind, by_keys)
    body = await objects.open(Location(BUCKET, "a.csv"))
    assert b"".join([chunk async for chunk in body]).count(b"\n") == 5
    await body.aclose()
    await objects.aclose()
