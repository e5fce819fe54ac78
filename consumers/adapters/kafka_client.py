"""What every client of Kafka shares: connection settings, deadlines, the translation of errors.

Rule: no call of aiokafka waits without a deadline. Past it the process ends with exit code 3 and
says which call was not answered, since aiokafka itself tries again for ever.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.helpers import create_ssl_context

from consumers import config
from consumers.adapters.certificates import untrusted
from consumers.errors import (
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    Fatal,
    PenstockError,
    Transient,
    Unreachable,
)
from consumers.process.stopping import stopped_after

Client = TypeVar("Client", AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient)

# Above the broker's answer times and above the rebalance timeout, as JoinGroup is an ordinary
# request to aiokafka.
REQUEST_TIMEOUT_MS = 40_000
# A broker that is up accepts a connection and says what it can do within milliseconds.
REACH_TIMEOUT_MS = 5_000
# A worker that stops has 10 s beyond its drain, as the supervisor and Kubernetes count: its last
# commit takes up to 5 of them, leaving the group 2, closing the producer 3.
COMMIT_S = 5.0
LEAVE_S = 2.0
CLOSE_S = 3.0

_SETTINGS_ERRORS = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
)
_NOBODY_ANSWERED = (kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError, OSError)
# What aiokafka does not call retriable, though another try is the cure. `UnknownError` is also what
# it makes of every code that is newer than its table, 73 and above.
_PASSING = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.UnknownError,
    kafka_errors.BrokerNotAvailableError,
    kafka_errors.ReplicaNotAvailableError,
    kafka_errors.ConcurrentTransactions,
)
CHECK_RIGHTS = "Check kafka.security_protocol, the kafka.sasl_* keys and the ACLs."
_NAMED = re.compile(r"\b(\w++)\(")


def connection(settings: config.Kafka) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
        "client_id": "penstock",
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
    }
    if settings.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = _ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = settings.sasl_mechanism or "PLAIN"
        arguments["sasl_plain_username"] = settings.sasl_username
        arguments["sasl_plain_password"] = settings.sasl_password
    return arguments


def _ssl_context(settings: config.Kafka) -> Any:
    try:
        return create_ssl_context(
            cafile=settings.ssl_cafile, certfile=settings.ssl_certfile, keyfile=settings.ssl_keyfile
        )
    except OSError as error:
        raise Fatal(
            f"kafka.ssl_cafile, ssl_certfile or ssl_keyfile cannot be used: {error}",
            exit_code=EXIT_USAGE,
        ) from error


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Every error of aiokafka or of the connection becomes one of ours, saying `what` failed."""
    try:
        yield
    except PenstockError:
        raise
    except (kafka_errors.KafkaError, OSError) as error:
        raise _of_ours(what, reason(error)) from error


def reason(error: Exception) -> Exception:
    """What a bare `KafkaError` stands for. aiokafka's own tasks end with one: the error that
    ended them is behind it, or is only named in its text.
    """
    if type(error) is not kafka_errors.KafkaError:
        return error
    if isinstance(error.__cause__, kafka_errors.KafkaError):
        return reason(error.__cause__)
    for name in _NAMED.findall(str(error)):
        found = getattr(kafka_errors, name, None)
        if isinstance(found, type) and found is not kafka_errors.KafkaError:
            return found(str(error)) if issubclass(found, kafka_errors.KafkaError) else error
    return error


def _of_ours(what: str, error: Exception) -> PenstockError:
    if isinstance(error, _SETTINGS_ERRORS):
        return _refused(what, error)
    if isinstance(error, _NOBODY_ANSWERED):
        if _is_about_certificates(error) or _is_about_certificates(error.__cause__):
            return _refused(what, error.__cause__ or error)
        return no_answer(what, repr(error))
    is_passing = isinstance(error, _PASSING) or getattr(error, "retriable", False)
    if is_passing:
        return not_now(what, repr(error))
    return Fatal(f"Kafka failed {what}: {error!r}")


def no_answer(what: str, said: str) -> Unreachable:
    return Unreachable(
        f"Kafka did not answer {what}: {said}. Is the broker of kafka.bootstrap_servers running?"
    )


def not_now(what: str, said: str) -> Transient:
    return Transient(f"Kafka could not do {what} now: {said}")


def _refused(what: str, error: BaseException) -> Fatal:
    untrusting = untrusted(str(error), "kafka.ssl_cafile")
    said = f"Kafka refused {what}: {error!r}. {_remedy(error)}"
    return untrusting or Fatal(said, exit_code=EXIT_USAGE)


def _remedy(error: BaseException) -> str:
    match error:
        case ssl.SSLError():
            return (
                "Check kafka.security_protocol, and kafka.ssl_certfile and kafka.ssl_keyfile if "
                "the broker asks for a certificate of ours."
            )
        case kafka_errors.SaslAuthenticationFailed():
            return "Correct kafka.sasl_username, kafka.sasl_password or kafka.sasl_mechanism."
        case _:
            return CHECK_RIGHTS


def _is_about_certificates(error: BaseException | None) -> bool:
    """An end in the middle of a handshake is not: a broker that goes down does that."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


@asynccontextmanager
async def answered_within(what: str, seconds: float) -> AsyncIterator[None]:
    """`translated`, with a deadline: past it `Unreachable`, for calls that are made again."""
    try:
        async with asyncio.timeout(seconds):
            with translated(what):
                yield
    except TimeoutError:
        raise Unreachable(_silence(what, seconds)) from None


@asynccontextmanager
async def within(what: str, seconds: float) -> AsyncIterator[None]:
    """`translated`, with a deadline: past it `Fatal`, exit code 3."""
    try:
        async with asyncio.timeout(seconds):
            with translated(what):
                yield
    except TimeoutError:
        raise Fatal(_silence(what, seconds), exit_code=EXIT_UNREACHABLE) from None


def _silence(what: str, seconds: float) -> str:
    return (
        f"Kafka did not answer {what} within {seconds:g} s.\n"
        "Are the brokers of kafka.bootstrap_servers up, and can all of them be reached?"
    )


async def reach(settings: config.Kafka) -> None:
    """Connect to one of the brokers as every client does, and leave it again. Raises `Unreachable`,
    or `Fatal` for credentials and certificates; aiokafka's own start does not tell one from the
    other, and logs every try.
    """
    arguments = connection(settings) | {"request_timeout_ms": REACH_TIMEOUT_MS}
    failure: PenstockError | None = None
    for host, port, _ in collect_hosts(arguments.pop("bootstrap_servers")):
        try:
            with translated(f"a connection to {host}:{port}"):
                (await create_conn(host, port, **arguments)).close()
                return
        except Transient as error:
            failure = error
    assert failure is not None, "kafka.bootstrap_servers names a broker"
    raise failure


async def start(client: Client, settings: config.Kafka, what: str) -> None:
    """Connect it, and what else its start does."""
    await reach(settings)
    async with within(what, settings.timeout_ms / 1000):
        await client.start()


async def close(client: Client, seconds: float, what: str) -> None:
    async with within(what, seconds):
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


@asynccontextmanager
async def opened(client: Client, settings: config.Kafka, what: str) -> AsyncIterator[Client]:
    """A client for the length of a block; `what` is its work, for messages."""
    async with stopped_after(lambda: close(client, CLOSE_S, f"the end of {what}")):
        await start(client, settings, f"the start of {what}")
        yield client
