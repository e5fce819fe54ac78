"""`penstock watch` on a broker: which answers it shows, from when on, and how long each took."""

import asyncio
import time
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from penstock import config
from penstock.adapters.kafka.follower import Bite
from penstock.adapters.kafka.sink import KafkaSink
from penstock.messages.prediction import Source
from penstock.ports import Outgoing
from penstock.process.asyncio_additions import SystemClock
from penstock.tools.verify.watch import (
    BEHIND,
    MOST_TIMES,
    WatchedAnswer,
    WatchFilter,
    _AskedTimes,
    watch,
)

pytest.importorskip("confluent_kafka")

PARTITION = 2
GONE = {"code": "not_found", "message": "no object a.csv\x1b[2J"}


def answer(offset: int, stream: str = "site-1/cam", **more: Any) -> bytes:
    record = {
        "v": 1,
        "id": f"refs/{PARTITION}/{offset}/0/0",
        "stream": stream,
        "source": {"topic": "refs", "partition": PARTITION, "offset": offset},
        "object": {"bucket": "b", "key": "a.csv", "version": None},
        "row": 0,
        "model": "rows",
        "prediction": {"label": offset},
    }
    return orjson.dumps(record | more)


async def put(cfg: config.Config, *answers: bytes) -> None:
    """A message on the input topic for each answer, and the answers."""
    sink = KafkaSink(cfg.kafka, SystemClock())
    await sink.start()
    for topic, values in (("refs", [b"{}"] * len(answers)), ("predictions", list(answers))):
        await sink.partitions(topic)  # it comes to be
        await (await sink.send(Outgoing(topic, PARTITION, [b"k"] * len(values), values)))
    await sink.stop()


async def first(cfg: config.Config, wanted: WatchFilter, *answers: bytes) -> WatchedAnswer:
    """The first answer that is shown; these are put again and again, until it follows the topic."""
    async with aclosing(watch(cfg, wanted, None)) as found:
        coming = asyncio.create_task(anext(found))
        while not coming.done():
            await put(cfg, *answers)
        return coming.result()[0]


async def test_it_begins_with_what_comes_now_and_tells_how_long_it_took(
    cfg: config.Config,
) -> None:
    await put(cfg, answer(0, "before"), answer(1, "before"))
    numbers = [answer(number, "now") for number in range(2, 30)]
    shown = await first(cfg, WatchFilter(), *numbers)
    assert shown.record.stream == "now"
    assert 0 <= (shown.took_ms or 0) < 60_000
    assert orjson.loads(shown.json)["record"]["stream"] == "now"


async def test_until_now_it_ends_though_no_answer_comes(cfg: config.Config) -> None:
    await put(cfg, answer(0))
    async with aclosing(watch(cfg, WatchFilter(), None, until_now=True)) as answers:
        assert [some async for some in answers] == []


async def test_streams_and_errors_choose(cfg: config.Config) -> None:
    answers = [answer(0), answer(1, "site-2/cam"), answer(2, error=GONE, prediction=None)]
    shown = await first(cfg, WatchFilter(["site-2/*"]), *answers)
    assert shown.line.split()[1:4] == ["site-2/cam", "refs/2/1/0/0", '{"label":1}']
    shown = await first(cfg, WatchFilter(errors=True), *answers)
    assert r"not_found: no object a.csv\x1b[2J" in shown.line, "no text controls the terminal"


def asked(times: _AskedTimes, *offsets: int) -> None:
    """Input records at these offsets come, each at the time of its offset."""
    records = [SimpleNamespace(offset=offset, timestamp=offset) for offset in offsets]
    times.note(Bite("refs", PARTITION, records))


def at_ms(times: _AskedTimes, offset: int) -> int | None:
    return times.at_ms(Source("refs", PARTITION, offset))


def test_answers_to_records_that_were_not_kept_make_room_for_later_ones() -> None:
    times = _AskedTimes()
    asked(times, *range(MOST_TIMES + 1))
    assert at_ms(times, MOST_TIMES) is None
    assert at_ms(times, 3 * MOST_TIMES) is None
    asked(times, 3 * MOST_TIMES + 1)
    assert at_ms(times, 3 * MOST_TIMES + 1) == 3 * MOST_TIMES + 1


def test_an_answer_costs_the_same_however_many_records_were_answered_before() -> None:
    times = _AskedTimes()
    asked(times, *range(MOST_TIMES))
    began_s = time.thread_time()
    for offset in range(0, MOST_TIMES, 10):
        assert at_ms(times, offset) == offset
    # Seen: 0.15 s; 30 s if the oldest time is looked for among those that were deleted.
    assert time.thread_time() - began_s < 5.0
    assert at_ms(times, MOST_TIMES - 2 * BEHIND) is None
