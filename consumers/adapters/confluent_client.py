"""What a client of librdkafka needs to know, and what its errors mean to us.

Rule: every error of confluent-kafka becomes one of ours here. librdkafka goes on trying by itself
where that can help; what it reports besides is only said in the log. Owner: the source.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from consumers import config
from consumers.adapters.kafka_client import CHECK_RIGHTS, no_answer, not_now
from consumers.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal, PenstockError

log = logging.getLogger("librdkafka")

# Where the coordinator is, is asked again after this, and a commit without one is given up; its
# own default is ten minutes.
COORDINATOR_MS = 5_000
# A request that is not answered by then is given up: reads wait for a commit meanwhile, and must
# go on before the group puts a member out that does not read.
SOCKET_TIMEOUT_MS = 10_000
# Its own lines would go to standard error past our log; a Python logger in their place makes
# confluent-kafka 2.16 abort the process (`CallState_get: cs != NULL`). What matters comes by
# `error_cb`, too.
LOG_LEVEL = 0

_RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
    }
)
_NOBODY_ANSWERED = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._RESOLVE,
    }
)
# What waiting does not mend.
_LASTING = frozenset(
    {
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INVALID_GROUP_ID,
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
# The group went on without us.
NO_MEMBER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)


def connection(settings: config.Kafka) -> dict[str, Any]:
    """The options that every client of librdkafka has in common."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": "penstock",
        "security.protocol": settings.security_protocol,
        "log_level": LOG_LEVEL,
        "log.connection.close": False,
        "allow.auto.create.topics": False,
        "coordinator.query.interval.ms": COORDINATOR_MS,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        # A broker that comes back is found as soon as by aiokafka.
        "reconnect.backoff.max.ms": 1_000,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl.ca.location"] = settings.ssl_cafile
        options["ssl.certificate.location"] = settings.ssl_certfile
        options["ssl.key.location"] = settings.ssl_keyfile
    if settings.security_protocol.startswith("SASL"):
        options["sasl.mechanism"] = settings.sasl_mechanism or "PLAIN"
        options["sasl.username"] = settings.sasl_username
        options["sasl.password"] = settings.sasl_password
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Every error of librdkafka becomes one of ours, saying `what` failed."""
    try:
        yield
    except PenstockError:
        raise
    except KafkaException as error:
        raise of_ours(what, error.args[0]) from error
    except RuntimeError as error:
        # What confluent-kafka raises of a consumer that was closed.
        raise not_now(what, str(error)) from error


def of_ours(what: str, error: KafkaError) -> PenstockError:
    said = f"{error.name()}: {error.str()}"
    if error.code() in _RIGHTS:
        return Fatal(f"Kafka refused {what}: {said}. {CHECK_RIGHTS}", exit_code=EXIT_USAGE)
    if error.fatal():
        return Fatal(
            f"Kafka failed {what}: {said}\nNothing is lost: start the worker again, it goes on at "
            "the last commit.",
            exit_code=EXIT_UNREACHABLE,
        )
    if error.code() in _LASTING:
        return Fatal(f"Kafka failed {what}: {said}")
    if error.code() in _NOBODY_ANSWERED:
        return no_answer(what, said)
    return not_now(what, said)


def noted(error: KafkaError) -> None:
    """What librdkafka says of brokers and goes on from by itself."""
    log.warning("%s: %s", error.name(), error.str())
