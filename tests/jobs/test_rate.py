"""The rate of a job goes by the commits, not by when one looks."""

import pytest

from penstock.commands.progress import progress_lines
from penstock.messages.command_json import Progress
from penstock.tools.jobs.progress import LOOK_S, PAST_S, Rate


def looked(rate: Rate, seconds: float, *, a_second: int, begin_s: float = 0.0) -> None:
    """A worker that commits every half second, looked at more often."""
    for look in range(int(seconds / LOOK_S)):
        now_s = begin_s + look * LOOK_S
        rate.look(now_s, int(now_s * 2) * a_second // 2)


@pytest.mark.parametrize("seconds", [3.0, 4.9, 30.0])
def test_a_steady_worker_has_the_same_rate_however_long_one_looks(seconds: float) -> None:
    rate = Rate()
    looked(rate, seconds, a_second=1_000)
    assert rate.a_second == 1_000


def test_one_change_tells_no_rate_and_none_is_none() -> None:
    rate = Rate()
    for now_s, done in [(0, 5), (1, 5), (2, 9)]:
        rate.look(now_s, done)
    assert rate.a_second == 0


def test_what_was_more_than_a_minute_ago_does_not_count() -> None:
    rate = Rate()
    looked(rate, 100, a_second=1_000)
    for second in range(100, 100 + int(PAST_S) + 2):
        rate.look(second, 100_000 + second - 100)
    assert rate.a_second == 1


@pytest.mark.parametrize(
    ("workers", "left_s", "said"),
    [
        (0, None, "0 a second now, 4 since it began: no worker is in the group g; start one"),
        (1, None, "nothing moves"),
        (1, 25.0, "about 25 s left"),
        (None, 25.0, "about 25 s left"),
    ],
)
def test_where_no_worker_is_there_no_time_is_promised(
    workers: int | None, left_s: float | None, said: str
) -> None:
    look = Progress(
        group="g",
        begun_ms=1,
        references=200,
        answered=100,
        left=100,
        rate=0.0,
        average=4.0,
        left_s=left_s,
        workers=workers,
        answered_by_errors=0,
        errors={},
        stopped=[],
    )
    assert said in "\n".join(progress_lines(look))
