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
    assert rules_of(Scenes()).is_grid
    leader = rules_of(Scenes(anchor="leader:cam-1"))
    assert (leader.is_grid, leader.leader) == (False, "cam-1")
    assert rules_of(Scenes(anchor="smallest")).leader is None


def test_the_changelog_is_the_one_that_faust_would_name() -> None:
    assert names(Scenes(group="g")).changelog == "g-sites-changelog"
