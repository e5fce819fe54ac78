"""What the Kafka source and sink share: connection settings and the translation of aiokafka's
errors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import errors as kafka_errors
from aiokafka.helpers import create_ssl_context

from consumers import config
from consumers.errors import EXIT_USAGE, Fatal, PenstockError, Transient, Unreachable

# Above the broker's answer times and above the rebalance timeout, as JoinGroup is an ordinary
# request to aiokafka.
REQUEST_TIMEOUT_MS = 40_000

_SETTINGS_ERRORS = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
)


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
    """Every aiokafka error inside becomes one of ours, saying `what` failed."""
    try:
        yield
    except PenstockError:
        raise
    except _SETTINGS_ERRORS as error:
        raise Fatal(
            f"Kafka refused {what}: {error!r}. "
            "Check kafka.security_protocol, the sasl_* and ssl_* keys and the ACLs.",
            exit_code=EXIT_USAGE,
        ) from error
    except (kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError) as error:
        raise Unreachable(
            f"Kafka did not answer {what}: {error!r}. "
            "Is the broker of kafka.bootstrap_servers running?"
        ) from error
    except kafka_errors.KafkaError as error:
        if error.retriable or isinstance(error, kafka_errors.KafkaTimeoutError):
            raise Transient(f"Kafka could not do {what} now: {error!r}") from error
        raise Fatal(f"Kafka failed {what}: {error!r}") from error
