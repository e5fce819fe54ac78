"""A topic that goes while a worker runs."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from penstock import config
from penstock.adapters.memory import MemorySink
from penstock.errors import EXIT_USAGE, Fatal, Unreachable, usage
from penstock.ops.topic_checks import (
    ALL_GONE_S,
    GONE_S,
    LOOK_EVERY_S,
    kept_longer,
    mind_credentials,
    mind_topics,
)
from penstock.tools.simulation.virtual_time import virtual_time

CFG = replace(config.Config(), kafka=config.Kafka(input_topic="refs"))


class Topics(MemorySink):
    """`missing`: the topic that is not there now."""

    def __init__(self, missing: Callable[[], str]) -> None:
        super().__init__()
        self._missing = missing

    async def partitions(self, topic: str) -> int:
        return 0 if topic == self._missing() else 4


class Login:
    """`check`: what becomes of a new connection. `refused_s`: when a broker refuses one."""

    def __init__(
        self, check: Callable[[], Awaitable[None]] | None = None, refused_s: float = float("inf")
    ) -> None:
        self._check, self._refused_s = check, refused_s

    async def refused(self) -> None:
        await asyncio.sleep(max(0.0, self._refused_s - now_s()))

    async def check(self) -> None:
        if self._check is not None:
            await self._check()


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    "topic", [*CFG.kafka.inputs, CFG.output.topic, CFG.output.dead_letter_topic]
)
@virtual_time
async def test_a_topic_that_went_is_called_gone_with_the_command_that_makes_it(topic: str) -> None:
    sink = Topics(lambda: topic if now_s() > 100.0 else "")
    with pytest.raises(Fatal, match=f"gone .*: topic {topic}.* penstock topics create") as ended:
        await mind_topics(CFG, sink, Login())
    assert ended.value.exit_code == EXIT_USAGE
    assert 100.0 + GONE_S <= now_s() <= 100.0 + GONE_S + 2 * LOOK_EVERY_S


@virtual_time
async def test_a_topic_that_a_broker_does_not_know_for_half_a_minute_ends_no_worker() -> None:
    sink = Topics(lambda: "refs" if 95.0 < now_s() % 200.0 < 130.0 else "")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3_600.0):
            await mind_topics(CFG, sink, Login())


@virtual_time
async def test_a_broker_that_knows_no_topic_is_waited_for_longer() -> None:
    class Empty(MemorySink):
        async def partitions(self, topic: str) -> int:
            return 0 if now_s() > 100.0 else 4

    with pytest.raises(Fatal, match=r"gone .*predictions and .*refs.* penstock topics create"):
        await mind_topics(CFG, Empty(), Login())
    assert now_s() >= 100.0 + ALL_GONE_S


@pytest.mark.parametrize("is_silent", [False, True])
@virtual_time
async def test_a_broker_that_is_away_has_lost_no_topic_but_may_refuse_us(
    is_silent: bool,
) -> None:
    class Away(MemorySink):
        async def partitions(self, topic: str) -> int:
            if is_silent:
                await asyncio.Event().wait()
            raise Unreachable("refused")

    async def connect() -> None:
        if now_s() > 7_000.0:
            raise usage("authentication failed")
        raise Unreachable("refused")

    with pytest.raises(Fatal, match="authentication failed") as ended:
        await mind_topics(CFG, Away(), Login(connect))
    assert ended.value.exit_code == EXIT_USAGE
    assert 7_000.0 < now_s() < 7_000.0 + 5 * LOOK_EVERY_S


@pytest.mark.parametrize("is_silent", [False, True])
@virtual_time
async def test_who_has_no_sink_notices_refused_credentials_too(is_silent: bool) -> None:
    connects = 0

    async def ask() -> None:
        if now_s() > 1_000.0:
            if is_silent:
                await asyncio.Event().wait()
            raise Unreachable("refused")

    async def connect() -> None:
        nonlocal connects
        connects += 1
        assert now_s() > 1_000.0
        if now_s() > 7_000.0:
            raise usage("authentication failed")
        raise Unreachable("refused")

    with pytest.raises(Fatal, match="authentication failed") as ended:
        await mind_credentials(ask, Login(connect))
    assert ended.value.exit_code == EXIT_USAGE
    assert 7_000.0 < now_s() < 7_000.0 + 2 * LOOK_EVERY_S
    assert connects > 300


@virtual_time
async def test_a_broker_that_refuses_us_is_asked_at_once() -> None:
    checks: list[float] = []

    async def check() -> None:
        checks.append(now_s())
        if len(checks) > 3:
            raise usage("no such user")

    with pytest.raises(Fatal, match="no such user"):
        await mind_topics(CFG, MemorySink(), Login(check, refused_s=1_003.0))
    # Refusals that a new connection does not meet are no reason to ask all the time.
    assert checks == [1_003.0, 1_004.0, 1_005.0, 1_006.0]


@virtual_time
async def test_a_refusal_waits_for_no_topic_that_is_asked_for() -> None:
    class Silent(MemorySink):
        async def partitions(self, topic: str) -> int:
            return await asyncio.Event().wait()

    async def check() -> None:
        raise usage("no such user")

    with pytest.raises(Fatal, match="no such user"):
        await mind_topics(CFG, Silent(), Login(check, refused_s=LOOK_EVERY_S + 1.0))
    assert now_s() == LOOK_EVERY_S + 1.0


def test_a_topic_that_keeps_records_longer_than_the_one_behind_it_is_known() -> None:
    told = {"refs": "1000", "a": "1000", "b": "1001", "c": "-1", "d": "5"}
    assert kept_longer(told, "refs") == ["b", "c"]
    assert kept_longer(told | {"refs": "-1"}, "refs") == []
    assert kept_longer({"a": "5"}, "refs") == [], "the broker does not tell"
