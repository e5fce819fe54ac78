"""Translates librdkafka's errors into ours.

Rule: librdkafka retries by itself where that can help; the errors that it reports meanwhile are
only logged. Among them is its own error of authentication: it comes for a broken connection or a
session that could not be renewed, too. Whoever minds the login asks the brokers whether they
refuse us.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from penstock.adapters.kafka.client import CHECK_RIGHTS, by_code, no_answer, not_now
from penstock.adapters.kafka.error_codes import RIGHTS, UNKNOWN_ERROR, RefusedUnit, about
from penstock.adapters.kafka.group.membership import LASTING, refusal
from penstock.errors import EXIT_UNREACHABLE, Fatal, PenstockError, usage

log = logging.getLogger("librdkafka")

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
# Errors of librdkafka's own that a retry cannot cure.
_LASTING = frozenset({KafkaError._INVALID_ARG, KafkaError._UNSUPPORTED_FEATURE})
# The errors that a commit gets if its partitions have a new owner.
NO_MEMBER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """A block that turns every error of librdkafka into one of our errors, whose text says that
    `what` failed.
    """
    try:
        yield
    except PenstockError:
        raise
    except KafkaException as error:
        raise of_ours(what, error.args[0]) from error
    except RuntimeError as error:
        # confluent-kafka raises RuntimeError when a closed consumer is used.
        raise not_now(what, str(error)) from error


def of_ours(what: str, error: KafkaError) -> PenstockError:
    message = f"{error.name()}: {error.str()}"
    if (code := _lasting(error)) is not None:
        return refusal(code)
    if _is_of_broker(error, RIGHTS):
        return usage(f"Kafka refused {what}: {message}. {CHECK_RIGHTS}")
    if is_fatal(error):
        return Fatal(
            f"Kafka failed {what}: {message}\nNothing is lost: start the worker again, it goes on "
            "at the last commit.",
            exit_code=EXIT_UNREACHABLE,
        )
    if error.code() in _LASTING:
        return Fatal(f"Kafka failed {what}: {message}")
    if error.code() in _NOBODY_ANSWERED:
        return no_answer(what, message)
    return by_code(what, error.code(), message) if _is_of_broker(error) else not_now(what, message)


def _is_of_broker(error: KafkaError, unit: RefusedUnit | None = None) -> bool:
    """Did the broker send this error? librdkafka's own errors have lower numbers."""
    code = error.code()
    return code >= UNKNOWN_ERROR and unit in (None, about(code))


def is_fatal(error: KafkaError) -> bool:
    """True for a fatal error: after such an error the client does nothing any more."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def is_unreleased(error: KafkaError) -> bool:
    """True if the group says that another member has our instance id. That member may be dead."""
    code = KafkaError.UNRELEASED_INSTANCE_ID
    return error.code() == code or (is_fatal(error) and KafkaError(code).str() in error.str())


def _lasting(error: KafkaError) -> int | None:
    """The broker's code if it stands for a lasting refusal, else None. librdkafka reports each
    fatal error as `_FATAL`, and only the text of the error tells which code the broker sent.
    """
    if error.code() != KafkaError._FATAL:
        return error.code() if error.code() in LASTING else None
    return next((code for code in LASTING if KafkaError(code).str() in error.str()), None)


def noted(error: KafkaError) -> None:
    """Log an error from which librdkafka recovers by itself."""
    log.warning("%s: %s", error.name(), error.str())
