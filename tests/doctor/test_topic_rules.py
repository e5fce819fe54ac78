"""Faults of topics, groups, clocks and machines, each planted alone in health."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from penstock import config
from penstock.adapters.kafka.topics import TopicShape
from penstock.tools.doctor.examine import MachineLimits, limits_here, look_at_machine
from penstock.tools.doctor.finding import Finding
from penstock.tools.doctor.topics import Facts, PartitionState, judge

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
CFG = config.Config()
HEALTHY: Mapping[str, str] = {
    "retention.ms": str(168 * HOUR_MS),
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
}


def shapes(topic: str = "", **changes: str) -> dict[str, TopicShape]:
    """Healthy topics, with changed settings of one of them; `_` stands for a dot."""
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return {
        name: TopicShape(4, 1, {**HEALTHY, **(changed if name == topic else {})})
        for name in CFG.topics
    }


def parts(**changes: Any) -> list[PartitionState]:
    """Healthy partitions, the first of them changed."""
    each = [
        PartitionState("refs", n, 0, 1_000, 990, 300, (), NOW_MS - 2_000, NOW_MS - 100)
        for n in range(4)
    ]
    return [each[0]._replace(**changes), *each[1:]]


HEALTH = Facts(shapes(), parts())

FAULTS: dict[str, tuple[Facts, str, str]] = {
    "the input is compacted": (
        HEALTH._replace(topics=shapes("refs", cleanup_policy="compact")),
        "wrong",
        "refs: it is compacted: of each key only the last message stays.*cleanup.policy=delete",
    ),
    "the output is compacted": (
        HEALTH._replace(topics=shapes("predictions", cleanup_policy="compact,delete")),
        "wrong",
        "predictions: it is compacted: of each stream only the last answer stays",
    ),
    "the dead-letter topic is compacted": (
        HEALTH._replace(topics=shapes("predictions.dlq", cleanup_policy="compact")),
        "wrong",
        "it refuses dead letters, which have no key",
    ),
    "more replicas in sync than there are": (
        HEALTH._replace(topics=shapes("predictions", min_insync_replicas="2")),
        "wrong",
        "every write is refused; kafka-configs.sh .*min.insync.replicas=1",
    ),
    "letters cannot hold what inline messages have": (
        HEALTH._replace(topics=shapes("predictions.dlq", max_message_bytes="200000")),
        "mind",
        "takes 200,000 bytes, refs 1,048,588.*max.message.bytes=1048588",
    ),
    "the backlog is older than half of the retention": (
        HEALTH._replace(parts=parts(oldest_ms=NOW_MS - 100 * HOUR_MS)),
        "wrong",
        "oldest unanswered message is 100.0 h old, and it keeps messages for 168.0 h.*retention",
    ),
    "the retention is shorter than a night": (
        HEALTH._replace(topics=shapes("refs", retention_ms=str(HOUR_MS))),
        "mind",
        "keeps messages for 1.0 h only",
    ),
    "messages were deleted unanswered": (
        HEALTH._replace(parts=parts(begin=995)),
        "wrong",
        "refs/0: .*is at 990, but the topic begins at 995: 5 messages were deleted",
    ),
    "the topic was made anew": (
        HEALTH._replace(parts=parts(end=10)),
        "mind",
        "refs/0: .*is at 990, but the topic ends at 10",
    ),
    "a line has stopped": (
        HEALTH._replace(parts=parts(stopped=[990])),
        "wrong",
        "refs/0/990: a line .* has stopped here.*penstock dlq resume",
    ),
    "a producer's clock is ahead": (
        HEALTH._replace(parts=parts(newest_ms=NOW_MS + 60_000)),
        "wrong",
        "60 s in the future.*timedatectl",
    ),
    "one partition gets nearly all": (
        HEALTH._replace(parts=parts(arrived=20_000)),
        "mind",
        "partition 0 got 96 % of the 20,900 messages of the last hour",
    ),
}


def said(findings: list[Finding]) -> str:
    [one] = findings
    return f"{one.what}: {one.said}"


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_alone_with_what_mends_it(fault: str) -> None:
    facts, level, says = FAULTS[fault]
    findings = judge(CFG, facts, NOW_MS)
    assert [finding.level for finding in findings] == [level], findings
    assert re.search(says, said(findings)), findings


@pytest.mark.parametrize(
    ("of_input", "of_rekey", "says"),
    [("600000", "600000", None), ("-1", "-1", None), ("600000", "-1", None),
     ("604800000", "86400000", "keeps messages for 24.0 h, less than refs.*retention.ms=604800000"),
     ("-1", "86400000", "retention.ms=-1")],
)  # fmt: skip
def test_a_topic_of_rekey_keeps_what_its_input_keeps(
    of_input: str, of_rekey: str, says: str | None
) -> None:
    cfg = config.Config(kafka=config.Kafka(rekey="by-stream"))
    kept = {"refs": of_input, "by-stream": of_rekey}
    topics = {
        topic: TopicShape(
            4, 1, {**HEALTHY, **({"retention.ms": kept[topic]} if topic in kept else {})}
        )
        for topic in cfg.topics
    }
    [finding] = judge(cfg, Facts(topics, []), NOW_MS)
    assert finding.level == ("ok" if says is None else "mind")
    assert re.search(says or "messages to do", finding.said)


@pytest.mark.parametrize(
    "well",
    [
        HEALTH,
        HEALTH._replace(parts=parts(committed=None, begin=100)),  # before the first start
        HEALTH._replace(parts=parts(committed=1_000, oldest_ms=None)),
        HEALTH._replace(parts=[]),  # a pattern that matches nothing yet
        HEALTH._replace(topics={name: TopicShape(4) for name in CFG.topics}),  # not told to us
        HEALTH._replace(topics=shapes("refs", retention_ms="-1")),
        HEALTH._replace(parts=parts(arrived=700)),
        HEALTH._replace(
            parts=[PartitionState("refs", 0, 0, 9_000, 9_000, 9_000)]
        ),  # a single partition
    ],
)
def test_nothing_is_found_in_health(well: Facts) -> None:
    [one] = judge(CFG, well, NOW_MS)
    assert one.level == "ok"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (MachineLimits(100, None), "the limit is 100; 25 fetches, 64 calls.*ulimit -n 378"),
        (MachineLimits(None, 512 * config.MIB), "the limit is 512 MiB.*lower limits.buffer_bytes"),
    ],
)
def test_a_machine_that_is_too_small_is_found(limits: MachineLimits, says: str) -> None:
    [one] = look_at_machine(CFG, limits)
    assert one.level == "wrong"
    assert re.search(says, one.said)


def test_a_machine_without_limits_and_this_one_are_well() -> None:
    for limits in (MachineLimits(None, None), limits_here()._replace(unconfined=())):
        assert [one.level for one in look_at_machine(CFG, limits)] == ["ok"]


def test_a_system_that_cannot_confine_decoders_is_told() -> None:
    [one] = look_at_machine(CFG, MachineLimits(None, None, ["reading files (no Landlock)"]))
    assert (one.what, one.level) == ("decoders", "mind")
    assert "keep them from reading files (no Landlock)" in one.said
