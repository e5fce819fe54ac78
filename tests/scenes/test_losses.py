"""What is told of predictions that are in no scene."""

import logging
import re
from pathlib import Path

import pytest

from penstock.scenes.core.rules import Rules
from penstock.scenes.core.site import Decisions, Site
from penstock.scenes.core.state import Decided, Reason, Refused
from penstock.scenes.site_figures import IN_A_ROW, MENDS, KeyedFigures, SiteFigures, losses
from tests.scenes.flows import EPOCH, arrival


@pytest.mark.parametrize("reason", MENDS)
def test_many_are_told_with_the_reason_and_what_mends_it(reason: str) -> None:
    text = losses({reason: 98}, 2, is_told=False)
    assert text is not None
    assert f"98 % of the last minute's predictions are in no scene, most {reason}: " in text
    assert text.endswith(MENDS[reason])


@pytest.mark.parametrize(
    ("refused", "placed", "is_told", "tells"),
    [
        (0, 0, False, False),
        (15, 4, False, False),  # so few are a beginning
        (5, 95, False, False),
        (6, 94, False, True),
        (4, 96, True, True),  # it does not come and go
        (2, 98, True, False),
    ],
)
def test_a_few_are_not_told(refused: int, placed: int, is_told: bool, tells: bool) -> None:
    assert (losses({"late": refused}, placed, is_told=is_told) is not None) is tells


@pytest.mark.parametrize("reason", ["ahead", "late"])
def test_one_camera_of_many_that_is_in_no_scene_is_named(
    reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    now = EPOCH
    figures, site = SiteFigures(lambda: now), Site("s", Rules())
    frames = {f"cam-{number}": arrival(f"cam-{number}", 1, 0, now, now) for number in range(49)}
    frame = arrival("odd", 1, 0, now + 1_200, now)

    def pass_by(scenes: int, *, is_odd: bool) -> str | None:
        members = frames if is_odd else frames | {"odd": frame}
        scene = Decided(now, 1, "complete", dict(members), dict.fromkeys(members, now), {})
        for _ in range(scenes):
            refused = [Refused(frame, "odd", reason, None)] * is_odd
            figures.decided("s", Decisions([scene], refused))
        lost: str | None = figures.look(site)["lost"]
        return lost

    assert pass_by(20, is_odd=False) is None
    now += 10_000
    assert pass_by(IN_A_ROW - 1, is_odd=True) is None
    by = " by 1.2 s" if reason == "ahead" else ""
    named = f"no prediction of odd is in a scene, {reason}{by}: {MENDS[reason]}"
    assert pass_by(1, is_odd=True) == named
    assert [record.message for record in caplog.records] == [f"site s: {named}"]
    assert pass_by(1, is_odd=False) is None


def test_the_page_and_the_log_tell_it_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = EPOCH
    figures, site = SiteFigures(lambda: now), Site("s", Rules())

    def pass_by(late: int, placed: int) -> str | None:
        frame = arrival("a", 1, 0, now, now)
        scene = Decided(now, 1, "complete", {"a": frame}, {"a": now}, {})
        refused = [Refused(frame, "a", "late", None)] * late
        figures.decided("s", Decisions([scene] * placed, refused))
        lost: str | None = figures.look(site)["lost"]
        return lost

    assert pass_by(50, 0) is None  # the rhythm is being learned
    now += 10_000
    assert "98 %" in (pass_by(98, 2) or "")
    now += 10_000
    assert pass_by(0, 100) is not None  # of the last minute
    now += 61_000
    assert figures.look(site)["lost"] is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_streams_whose_names_have_no_site_are_told_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = EPOCH
    figures = KeyedFigures(lambda: now)
    for number in range(200):
        now += 50
        figures.refused("no_site", f"cam{number % 4}")
    told = "100 % of the last minute's predictions are in no scene, most no_site: scenes.site finds"
    assert (figures.judge() or "").startswith(told)
    assert (figures.judge() or "").endswith("the last of cam3")
    for _ in range(6_000):
        now += 50
        figures.placed()
    assert figures.judge() is None
    assert figures.totals == {"arrived": 6_200, "no_site": 200, "unreadable": 0}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_the_alert_counts_every_reason() -> None:
    rules = Path("deploy/prometheus/rules.yml").read_text()
    (reasons,) = re.findall(r'penstock_scenes_predictions_total\{what=~"([a-z_|]+)"', rules)
    assert set(reasons.split("|")) == MENDS.keys()
