"""Says that many of a site's predictions are in no scene: how many, why, and what mends it.

Rule: pure; the reason with the most predictions is told. Owner: the site's figures.
"""

from collections.abc import Mapping
from typing import Final

from penstock.scenes.core.state import Reason

# A frame that comes late now and then is normal; more than one in twenty is a wrong setting or a
# wrong clock. Once told, it is told until it is half as many.
IN_BULK: Final = 0.05
FEWEST: Final = 20

MENDS: Final[Mapping[Reason, str]] = {
    "late": "they came after their scene had closed: raise scenes.patience_ms, or look at why "
    "their streams are slow; cameras that are triggered, not periodic, need "
    'scenes.anchor = "smallest" and a scenes.tolerance_ms',
    "surplus": "their member speaks more than once a period: set scenes.period_ms to the period of "
    "the fastest member",
    "off_grid": "their times are farther from the grid or the rhythm than scenes.tolerance_ms: "
    'leave scenes.anchor and scenes.tolerance_ms at "rhythm" and "auto"',
    "ahead": "their event time is ahead of Kafka's clock or of the other members: set the member's "
    "clock, or scenes.offsets_ms",
    "no_time": "they have no event time: announce objects with event_time, or take it from the key "
    "(kafka.time_from) or from a column (rows.time)",
    "other_model": "another model than scenes.model made them",
    "stranger": "their member is not on the site's list: add it to scenes.members",
    "crowded": "the site has scenes.max_members already: is scenes.site right?",
    "overload": "scenes.max_open scenes are undecided: members are too far apart in time",
}


def losses(refused: Mapping[Reason, int], placed: int, *, is_told: bool) -> str | None:
    """What to tell about this many refused predictions, beside `placed` in scenes. None: nothing.
    `is_told`: True if it was told already.
    """
    lost = sum(refused.values())
    if lost + placed < FEWEST or lost <= IN_BULK * (lost + placed) / (2 if is_told else 1):
        return None
    reason = max(refused, key=refused.__getitem__)
    share = f"{100 * lost / (lost + placed):.0f} %"
    return (
        f"{share} of the last minute's predictions are in no scene, most {reason}: {MENDS[reason]}"
    )
