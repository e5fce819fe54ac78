"""Every error code of Kafka's protocol, as both clients report it."""

import pytest
from aiokafka import errors as kafka_errors
from confluent_kafka import KafkaError

from penstock.adapters.confluent.errors import of_ours
from penstock.adapters.kafka.client import translated
from penstock.adapters.kafka.error_codes import (
    BROKER,
    CODES,
    MENDS,
    RECORD,
    RIGHTS,
    TOPIC,
    US,
    about,
)
from penstock.adapters.kafka.group.membership import LASTING
from penstock.errors import EXIT_FATAL, EXIT_USAGE, Fatal, PenstockError, Transient

# The protocol's codes as of Kafka 4.1; 0 is no error.
EVERY_CODE = [-1, *range(1, 134)]
UNKNOWN_TO_US = 999


def by_aiokafka(code: int) -> PenstockError:
    with pytest.raises(PenstockError) as caught, translated("a request"):
        raise kafka_errors.for_code(code)("its words")
    return caught.value


def by_librdkafka(code: int) -> PenstockError:
    return of_ours("a request", KafkaError(code, "its words"))


def test_the_table_has_a_line_for_each_code_and_no_other() -> None:
    assert list(CODES) == EVERY_CODE
    assert set(kafka_errors.kafka_errors) == {0, *EVERY_CODE}
    assert set(MENDS) < set(CODES)


def test_the_names_are_those_of_librdkafka() -> None:
    known = {code: KafkaError(code).name() for code in EVERY_CODE if code > 17}
    told = {code: name for code, name in known.items() if not name.startswith("ERR_")}
    assert len(told) > 90
    assert {code: CODES[code].name for code in told} == told


@pytest.mark.parametrize("code", [*EVERY_CODE, UNKNOWN_TO_US])
def test_both_clients_judge_a_code_by_what_it_is_about(code: int) -> None:
    for error in (by_aiokafka(code), by_librdkafka(code)):
        if code in LASTING or about(code) in (RECORD, TOPIC, RIGHTS) or code in MENDS:
            assert isinstance(error, Fatal)
            assert error.exit_code == EXIT_USAGE
        elif about(code) is BROKER:
            assert isinstance(error, Transient)
        else:
            assert about(code) is US
            assert isinstance(error, Fatal)
            assert error.exit_code == EXIT_FATAL
        if code in CODES and code not in LASTING:
            assert "its words" in str(error)


@pytest.mark.parametrize("code", MENDS)
def test_what_a_setting_mends_names_the_setting(code: int) -> None:
    assert str(by_aiokafka(code)).endswith(MENDS[code])
    assert str(by_librdkafka(code)).endswith(MENDS[code])
    assert CODES[code].name in str(by_aiokafka(code))


def test_librdkafkas_own_error_of_authentication_is_no_refusal() -> None:
    """It comes for each request that waited for a connection whose session was not renewed."""
    message = "FindCoordinator response error: Local: Authentication failure"
    assert isinstance(of_ours("a read", KafkaError(KafkaError._AUTHENTICATION, message)), Transient)
