"""What is told of a service that does not answer, or that answers and fails."""

import asyncio
import logging

import pytest

from penstock.errors import Fatal, Unreachable
from penstock.failures.outage import CHANCE_S, FAILS_S, Outage, longest, until_answered
from penstock.tools.simulation.virtual_time import virtual_time


class HandClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def now(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


def test_a_service_that_failed_and_now_is_away_is_told_to_be_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage("model server", HandClock(), None)
    with caplog.at_level(logging.WARNING):
        outage.fails("it leaves rows without an answer")
        for _ in range(3):
            outage.unreachable(Unreachable("connection refused"))
            outage.fails("it leaves rows without an answer")
    assert [record.getMessage() for record in caplog.records] == [
        "the model server fails, waiting: it leaves rows without an answer",
        "the model server does not answer, waiting: connection refused",
    ]


def test_what_to_check_is_logged_but_no_part_of_what_the_page_tells(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage("model server", HandClock(), None)
    outage.unreachable(Unreachable("connection refused", mend="check model.url"))
    assert outage.why == "connection refused"
    assert "waiting: connection refused; check model.url" in caplog.text


def test_an_outage_begins_anew_after_a_failure_that_ended_by_itself() -> None:
    clock = HandClock()
    outage = Outage("model server", clock, 60.0)
    outage.fails("it leaves rows without an answer")
    clock.now_s += FAILS_S + 1
    assert outage.away_s is None
    outage.unreachable(Unreachable("connection refused"))
    assert outage.away_s == 0.0
    clock.now_s += 60.0
    with pytest.raises(Fatal, match="did not answer for 60 s"):
        outage.unreachable(Unreachable("connection refused"))


def test_a_service_that_never_did_its_work_is_not_waited_for() -> None:
    outage = Outage("model server", HandClock(), 60.0)
    outage.fails("it hangs up")
    with pytest.raises(Fatal, match="the model server fails: it hangs up"):
        outage.fails("it hangs up", did_work=False)
    Outage("model server", HandClock(), None).fails("it hangs up", did_work=False)


@virtual_time
async def test_a_start_shows_a_service_that_takes_its_question_and_never_answers() -> None:
    answers, shown = asyncio.Event(), [Outage("object store", HandClock(), None)]

    async def ask() -> None:
        await answers.wait()

    asking = asyncio.create_task(until_answered("object store", ask, HandClock(), 60.0, shown))
    await asyncio.sleep(CHANCE_S - 1.0)
    assert longest(shown)["object store"].away_s is None
    await asyncio.sleep(1.5)
    outage = longest(shown)["object store"]
    assert (outage.away_s, outage.why) == (CHANCE_S, "no byte of an answer came")
    answers.set()
    await asking
    assert longest(shown)["object store"].away_s is None
