"""What every client of aiokafka needs: connection settings, deadlines, the translation of errors.

Rule: no call of aiokafka waits without a deadline, because aiokafka itself retries for ever. Past
it a call raises `Fatal`, with exit code 3 and its name; one that our code repeats raises
`Unreachable`.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import AIOKafkaConnection, collect_hosts

from penstock import config
from penstock.adapters.http.certificates import untrusted
from penstock.adapters.kafka.error_codes import BROKER, CODES, MENDS, RECORD, RIGHTS, TOPIC, about
from penstock.adapters.kafka.group.membership import LASTING, refusal
from penstock.adapters.kafka.identity.identity import identity_of
from penstock.adapters.kafka.inside.authentication import AuthenticatedConnection
from penstock.adapters.kafka.inside.silent_connections import watch_connections
from penstock.errors import (
    EXIT_UNREACHABLE,
    Fatal,
    PenstockError,
    Transient,
    Unreachable,
    first_cause,
    usage,
    words_of,
)
from penstock.process.asyncio_additions import stopped_after

Client = TypeVar("Client", AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient)

# This must be longer than the rebalance timeout: the request timeout of aiokafka also bounds
# JoinGroup, and the broker answers JoinGroup only when all members have joined.
REQUEST_TIMEOUT_MS = 40_000
# A running broker accepts a connection and lists its API versions within milliseconds.
REACH_TIMEOUT_MS = 5_000
# A broker that does not know the key of a token fetches its keys anew, and takes the next one. And
# a password is changed on the brokers some seconds before or after it is written to its file.
TOKENS_TRIED, PASSWORDS_TRIED = 3, 8
NEXT_TRY_S = 1.0
# The supervisor and Kubernetes give a stopping worker 10 s beyond its drain. These 10 s are divided
# as follows: 5 s for the last commit, 2 s to leave the group, 3 s to close the producer.
COMMIT_S = 5.0
LEAVE_S = 2.0
CLOSE_S = 3.0

_NOBODY_ANSWERED = (kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError, OSError)
SEE_TOPIC = "Look at the settings of the topic: the brokers take no such record there."
CHECK_RIGHTS = "Check kafka.security_protocol, the kafka.sasl_* keys and the ACLs."
_NAMED = re.compile(r"\b(\w++)\(")


def connection(settings: config.Kafka) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client, whose connections are watched from now on."""
    watch_connections()
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
        "client_id": "penstock",
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "connections_max_idle_ms": settings.idle_ms,
    }
    if settings.security_protocol == "PLAINTEXT":
        return arguments
    identity = identity_of(settings)
    arguments["ssl_context"] = identity.tls
    # Our connections ask it whatever the mechanism is.
    arguments["sasl_oauth_token_provider"] = identity
    if identity.mechanism is not None:
        arguments["sasl_mechanism"] = identity.mechanism
        # aiokafka looks whether they are set. Each connection has the password of its time.
        arguments["sasl_plain_username"] = identity.username or ""
        arguments["sasl_plain_password"] = ""
    return arguments


class translated:  # noqa: N801 (used like a function)
    """A block that turns every error of aiokafka or of the connection into one of our errors, whose
    text says that `what` failed. It is a class because it is entered for each batch:
    `contextmanager` would make two objects and a generator for each.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if isinstance(error, kafka_errors.KafkaError | OSError):
            raise _of_ours(self._what, reason(error)) from error


def check_code(code: int, words: str | None = None) -> None:
    """Raises aiokafka's error for a broker's code that is not 0."""
    if code:
        raise kafka_errors.for_code(code)(words or f"error {code}")


def reason(error: Exception) -> Exception:
    """The real error behind a bare `KafkaError`, with which aiokafka's own tasks end. The real
    error is the `__cause__` of the bare one, or the text of the bare one contains its name.
    """
    if type(error) is not kafka_errors.KafkaError:
        return error
    if isinstance(error.__cause__, kafka_errors.KafkaError):
        return reason(error.__cause__)
    later = {kind.__name__: kind for kind in kafka_errors.kafka_errors.values()}
    for name in _NAMED.findall(str(error)):
        error_kind = getattr(kafka_errors, name, later.get(name))
        if isinstance(error_kind, type) and error_kind is not kafka_errors.KafkaError:
            return (
                error_kind(str(error)) if issubclass(error_kind, kafka_errors.KafkaError) else error
            )
    return error


def _of_ours(what: str, error: Exception) -> PenstockError:
    if isinstance(error, kafka_errors.BrokerResponseError):
        if error.errno in LASTING:
            return refusal(error.errno)
        if about(error.errno) is RIGHTS:
            return _refused(what, error)
        return by_code(what, error.errno, words_of(error))
    if isinstance(error, kafka_errors.AuthenticationFailedError):
        return _refused(what, error)
    if isinstance(error.__cause__, PenstockError):  # of the provider of our tokens
        return error.__cause__
    if isinstance(error, _NOBODY_ANSWERED):
        if _is_about_certificates(error) or _is_about_certificates(error.__cause__):
            return _refused(what, error.__cause__ or error)
        return no_answer(what, words_of(error))
    if getattr(error, "retriable", False) or isinstance(error, kafka_errors.KafkaTimeoutError):
        return not_now(what, words_of(error))
    return Fatal(f"Kafka failed {what}: {words_of(error)}")


def by_code(what: str, code: int, words: str) -> PenstockError:
    """Our error for a broker's code, unless the code is about rights or about membership. `words`:
    the error in the client's words.
    """
    unit = about(code)
    if unit is BROKER:
        return not_now(what, words)
    named = (
        words if code not in CODES or CODES[code].name in words else f"{CODES[code].name}: {words}"
    )
    if code in MENDS or unit in (RECORD, TOPIC):
        return usage(f"Kafka refused {what}: {named}.\n{MENDS.get(code, SEE_TOPIC)}")
    return Fatal(f"Kafka failed {what}: {named}")


def no_answer(what: str, words: str) -> Unreachable:
    mend = "check kafka.bootstrap_servers and that the brokers run"
    return Unreachable(f"Kafka did not answer {what}: {words}", mend=mend)


def not_now(what: str, words: str) -> Transient:
    return Transient(f"Kafka could not do {what} now: {words}")


def _refused(what: str, error: BaseException) -> Fatal:
    untrusting = untrusted(str(error), "kafka.ssl_cafile")
    message = f"Kafka refused {what}: {words_of(error)}. {_remedy(error)}"
    return untrusting or usage(message)


def _remedy(error: BaseException) -> str:
    match error:
        case ssl.SSLError():
            return (
                "Check kafka.security_protocol, and kafka.ssl_certfile and kafka.ssl_keyfile if "
                "the broker asks for a certificate of ours."
            )
        case kafka_errors.SaslAuthenticationFailed():
            return (
                "Correct kafka.sasl_username, kafka.sasl_password or kafka.sasl_mechanism; with "
                "OAUTHBEARER, [kafka.oauth] and what the broker asks of a token."
            )
        case _:
            return CHECK_RIGHTS


def _is_about_certificates(error: BaseException | None) -> bool:
    """True if TLS failed for a lasting reason, such as a certificate that is not trusted. False if
    the connection only ended during the handshake: a broker that stops also ends the connection,
    and another try may succeed.
    """
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


def answered_within(what: str, seconds: float) -> AbstractAsyncContextManager[None]:
    """`translated` with a deadline, for calls that we repeat: past the deadline it raises
    `Unreachable`.
    """
    return _bounded(what, seconds, Unreachable)


def within(what: str, seconds: float) -> AbstractAsyncContextManager[None]:
    """`translated` with a deadline: past the deadline it raises `Fatal` with exit code 3."""
    return _bounded(what, seconds, partial(Fatal, exit_code=EXIT_UNREACHABLE))


def unanswered(what: str, seconds: float) -> str:
    return (
        f"Kafka did not answer {what} within {seconds:g} s.\n"
        "Are the brokers of kafka.bootstrap_servers up, and can all of them be reached?"
    )


@asynccontextmanager
async def _bounded(
    what: str, seconds: float, late: Callable[[str], PenstockError]
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            with translated(what):
                yield
    except TimeoutError:
        raise late(unanswered(what, seconds)) from None


async def reach(settings: config.Kafka) -> None:
    """Connect to one of the brokers, with the settings that all clients use, and disconnect. Raises
    `Unreachable` if no broker answers, and `Fatal` if credentials or certificates are wrong. We do
    this before we start a client of aiokafka, because such a client raises the same error in all of
    these cases, and logs every try.
    """
    arguments = connection(settings) | {"request_timeout_ms": REACH_TIMEOUT_MS}
    del arguments["connections_max_idle_ms"]  # the connection is closed at once
    tries = PASSWORDS_TRIED if settings.sasl_password_file is not None else 1
    if arguments.get("sasl_mechanism") == "OAUTHBEARER":
        tries = TOKENS_TRIED
    for left in reversed(range(tries)):
        try:
            await _reach(arguments)
            return
        except Fatal:
            if not left:
                raise
        await asyncio.sleep(NEXT_TRY_S)


async def _reach(arguments: dict[str, Any]) -> None:
    failure: PenstockError | None = None
    for host, port, _ in collect_hosts(arguments["bootstrap_servers"]):
        try:
            with translated(f"a connection to {host}:{port}"):
                await _greet(host, port, arguments)
                return
        except Transient as error:
            failure = error
    assert failure is not None, "kafka.bootstrap_servers names a broker"
    raise failure


class KafkaLogin:
    """Whether the brokers take these credentials."""

    def __init__(self, settings: config.Kafka) -> None:
        self._settings = settings

    async def refused(self) -> None:
        await identity_of(self._settings).refused()

    async def check(self) -> None:
        await reach(self._settings)


async def _greet(host: str, port: int, arguments: dict[str, Any]) -> None:
    """Connect and disconnect. Returns when the socket is closed. Over TLS both sides must agree to
    the end, so a socket would otherwise outlive its connection, and perhaps the event loop.
    """
    closing: list[AIOKafkaConnection] = []
    arguments = arguments | {"on_close": lambda client, _: closing.append(client)}
    del arguments["bootstrap_servers"]
    connection = AuthenticatedConnection(host, port, **arguments)
    try:
        await connection.connect()
    finally:
        closed = connection.close()
        if closing:  # otherwise it was never open, and `closed` will never be done
            await asyncio.wait([closed], timeout=CLOSE_S)


@asynccontextmanager
async def telling_refusals(settings: config.Kafka) -> AsyncIterator[None]:
    """A long block of work with Kafka. If the block ends with exit code 3, a new connection shows
    whether the brokers refuse our credentials now: a password may have been changed since the
    start, or a certificate may have expired. Clients repeat a refused connection like a broken one,
    so the block's own error only says that nobody answered.
    """
    try:
        yield
    except (Fatal, BaseExceptionGroup) as error:
        cause = first_cause(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(cause, Fatal) and cause.exit_code == EXIT_UNREACHABLE:
            with suppress(Transient):
                await reach(settings)
        raise


async def start(client: Client, settings: config.Kafka, what: str) -> None:
    """Check that a broker can be reached, then start the client."""
    await reach(settings)
    async with within(what, settings.timeout_ms / 1000):
        await client.start()


async def close(client: Client, seconds: float, what: str) -> None:
    async with within(what, seconds):
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


@asynccontextmanager
async def opened(client: Client, settings: config.Kafka, what: str) -> AsyncIterator[Client]:
    """Start the client, and close it when the block ends. `what`: the client's work, for the texts
    of errors.
    """
    async with stopped_after(lambda: close(client, CLOSE_S, f"the end of {what}")):
        await start(client, settings, f"the start of {what}")
        yield client
