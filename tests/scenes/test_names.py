"""The section `scenes` is checked before anything starts."""

from typing import Any

import pytest

from penstock.config import Scenes
from penstock.errors import Fatal
from penstock.scenes.settings import names, rules_of


@pytest.mark.parametrize(
    "wrong",
    [
        {"site": "("},
        {"site": "(?P<site>.*)"},
        {"anchor": "leader"},
        {"anchor": "leader:"},
        {"inline": "score"},
        {"input_topic": "scenes"},
    ],
)
def test_a_section_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(Fatal, match=rf"scenes\.{key}"):
        rules_of(Scenes(**wrong))


def test_the_anchors() -> None:
    def of(**keys: Any) -> tuple[Any, ...]:
        rules = rules_of(Scenes(**keys))
        return rules.anchor, rules.leader, rules.period_ms, rules.within_ms

    assert of()[:3] == ("rhythm", None, 0)
    assert of(period_ms=200)[:3] == ("rhythm", None, 200)
    assert of(anchor="grid") == ("grid", None, 50, 25)
    assert of(anchor="grid", period_ms=200) == ("grid", None, 200, 100)
    assert of(anchor="leader:cam-1") == ("leader", "cam-1", 50, 25)
    assert of(anchor="smallest", tolerance_ms=80) == ("smallest", None, 50, 80)


def test_the_changelog_is_the_one_that_faust_would_name() -> None:
    assert names(Scenes(group="g")).changelog == "g-sites-changelog"
