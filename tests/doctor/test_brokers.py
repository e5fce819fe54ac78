"""What a broker says of itself, and where it does not fit a worker."""

import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from penstock import config
from penstock.adapters.kafka.topics import BrokerWords
from penstock.tools.doctor.examine import judge_broker

# Kafka 4.4's own.
SETTINGS: Mapping[str, str] = {
    "offset.metadata.max.bytes": "4096",
    "transaction.max.timeout.ms": "900000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
}
EVERY = frozenset(range(93))
HEALTHY = BrokerWords(EVERY, SETTINGS)
AT_LEAST = config.Config()
EXACTLY = replace(AT_LEAST, delivery=replace(AT_LEAST.delivery, guarantee="exactly_once"))
CONSUMER = replace(EXACTLY, kafka=config.Kafka(client="confluent", group_protocol="consumer"))


def told(**changes: str) -> BrokerWords:
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return HEALTHY._replace(settings={**SETTINGS, **changed})


def without(*requests: int) -> BrokerWords:
    return HEALTHY._replace(requests=EVERY.difference(requests))


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        (EXACTLY, HEALTHY),
        (EXACTLY, HEALTHY._replace(settings={})),
        (AT_LEAST, without(24, 25, 26, 28)),
        (AT_LEAST, told(transaction_max_timeout_ms="1000")),
        (CONSUMER, without(11)),
        (CONSUMER, HEALTHY),
    ],
)
def test_a_broker_that_fits(cfg: config.Config, words: BrokerWords) -> None:
    assert judge_broker(cfg, words) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (told(offset_metadata_max_bytes="512"), r"offset\.metadata\.max\.bytes is 512.*4096"),
        (told(transaction_max_timeout_ms="15000"), "15,000.*30,000 ms.*at_least_once"),
        (told(group_min_session_timeout_ms="10000"), r"10000.*kafka\.session_ms = 8000"),
        (told(group_max_session_timeout_ms="7000"), r"7000.*kafka\.session_ms = 8000"),
        (without(26), 'no transactions.*guarantee = "at_least_once"'),
        (without(22), "idempotent"),
        (without(11), 'KIP-848.*client = "confluent".*group_protocol = "consumer"'),
    ],
)
def test_what_does_not_fit_is_named_with_what_mends_it(words: BrokerWords, reason: str) -> None:
    (finding,) = judge_broker(EXACTLY, words)
    assert (finding.what, finding.level) == ("broker", "wrong")
    assert re.search(reason, finding.said)
