"""Topics by a pattern: there may be none yet."""

import asyncio

import pytest

from penstock.adapters.confluent import member_options
from tests.adapters.confluent.member import member


async def test_without_a_topic_that_matches_nothing_is_joined_and_nothing_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_options, "LOOK_S", 0.0)
    async with member(monkeypatch, input_pattern="re.s", timeout_ms=10_000) as one:
        one.consumer.topics = {"__consumer_offsets": None, "others": None}
        begun_s = asyncio.get_running_loop().time()

        def joining_since_s() -> float | None:
            return one.source._joining_since_s

        await one.polls(lambda: True)
        assert one.consumer.said == []
        assert joining_since_s() is None
        one.consumer.topics["refs"] = None
        await one.polls(lambda: one.consumer.said == ["subscribe ['refs']"])
        assert (joining_since_s() or 0.0) > begun_s
        await one.is_assigned(0, 1)
        assert joining_since_s() is None


async def test_topics_that_come_later_are_read_too_and_none_is_given_up_if_all_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_options, "LOOK_S", 0.0)
    async with member(monkeypatch, input_pattern="re.s") as one:
        one.consumer.topics = {"refs": None}
        await one.polls(lambda: one.consumer.said == ["subscribe ['refs']"])
        one.consumer.topics["reds"] = None
        await one.polls(lambda: one.consumer.said[1:] == ["subscribe ['reds', 'refs']"])
        one.consumer.topics = {}
        await one.polls(lambda: True)
        assert one.consumer.said[2:] == []
