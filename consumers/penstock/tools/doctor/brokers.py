"""Compares what a broker says of itself with what a worker needs. What it does not tell is not
judged.
"""

from collections.abc import Iterator
from typing import Final

from penstock import config
from penstock.adapters.kafka.broker_words import BrokerWords, broker_words
from penstock.adapters.kafka.exactly_once.transactions import TRANSACTION_TIMEOUT_S
from penstock.core.progress.cursor import MAX_CHARS
from penstock.tools.doctor.finding import Finding, hurried

METADATA: Final = "offset.metadata.max.bytes"
TRANSACTION: Final = "transaction.max.timeout.ms"
LEAST_SESSION: Final = "group.min.session.timeout.ms"
MOST_SESSION: Final = "group.max.session.timeout.ms"
SETTINGS: Final = (METADATA, TRANSACTION, LEAST_SESSION, MOST_SESSION)
# The numbers of requests: JoinGroup; InitProducerId, which gives a producer its number; and those
# by which a transaction takes records and positions and ends.
_JOIN: Final = 11
_PRODUCER: Final = 22
_TRANSACTIONS: Final = frozenset({24, 25, 26, 28})


async def look_at_brokers(cfg: config.Config) -> list[Finding]:
    words = await broker_words(hurried(cfg.kafka), SETTINGS)
    untold = [name for name in SETTINGS if name not in words.settings]
    message = f"it does not tell us {', '.join(untold)}" if untold else "its limits fit this worker"
    return judge_broker(cfg, words) or [Finding("broker", "ok", message)]


def judge_broker(cfg: config.Config, words: BrokerWords) -> list[Finding]:
    wrong = [*_metadata(words), *_transactions(cfg, words), *_group(cfg, words)]
    return [Finding("broker", "wrong", reason) for reason in wrong]


def _limit(words: BrokerWords, name: str) -> int | None:
    setting = words.settings.get(name)
    return None if setting is None else int(setting)


def _metadata(words: BrokerWords) -> Iterator[str]:
    most = _limit(words, METADATA)
    if most is not None and most < MAX_CHARS:
        yield (
            f"its {METADATA} is {most:,}, but a worker's place in a large object may take "
            f"{MAX_CHARS:,}, and a commit that is refused ends the worker; set it to 4096, its "
            "default, or more"
        )


def _transactions(cfg: config.Config, words: BrokerWords) -> Iterator[str]:
    if _PRODUCER not in words.requests:
        yield "it knows no idempotent producers (Kafka 0.11), without which no answer is written"
    if cfg.delivery.guarantee != "exactly_once":
        return
    if not words.requests >= _TRANSACTIONS:
        yield 'it knows no transactions; set delivery.guarantee = "at_least_once"'
    most_ms, ours_ms = _limit(words, TRANSACTION), int(TRANSACTION_TIMEOUT_S * 1000)
    if most_ms is not None and most_ms < ours_ms:
        yield (
            f"its {TRANSACTION} is {most_ms:,}, but a worker's transactions may last "
            f'{ours_ms:,} ms; raise it, or set delivery.guarantee = "at_least_once"'
        )


def _group(cfg: config.Config, words: BrokerWords) -> Iterator[str]:
    if cfg.kafka.group_protocol != "classic":
        return  # its terms are looked at with the group
    if _JOIN not in words.requests:
        yield (
            "it knows only the new protocol of groups (KIP-848); set "
            'kafka.client = "confluent" and kafka.group_protocol = "consumer"'
        )
    least_ms, most_ms = _limit(words, LEAST_SESSION), _limit(words, MOST_SESSION)
    for name, is_outside in (
        (LEAST_SESSION, least_ms is not None and cfg.kafka.session_ms < least_ms),
        (MOST_SESSION, most_ms is not None and cfg.kafka.session_ms > most_ms),
    ):
        if is_outside:
            yield (
                f"its {name} is {words.settings[name]}, so it refuses a member with "
                f"kafka.session_ms = {cfg.kafka.session_ms}; change one of them"
            )
