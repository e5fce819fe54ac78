"""Translates `[scenes]`; settings that contradict each other are refused here."""

import re
from typing import Final, NamedTuple, cast

from penstock import config
from penstock.errors import Fatal, usage
from penstock.scenes.core.rules import Anchor, Rules

LEADER = "leader:"
# The period of a grid if none is set: of cameras and sensors at 20 Hz.
GRID_MS: Final = 50
LEARNED: Final = 0


class Names(NamedTuple):
    """The topics. Only our own workers use `by_site` (the repartition topic) and `changelog`."""

    input: str
    scenes: str
    late: str
    by_site: str
    changelog: str


def names(scenes: config.Scenes) -> Names:
    return Names(
        input=scenes.input_topic,
        scenes=scenes.topic,
        late=scenes.late_topic,
        by_site=f"{scenes.group}-by-site",
        changelog=f"{scenes.group}-sites-changelog",
    )


def rules_of(scenes: config.Scenes, most_sites: int = config.SITES) -> Rules:
    """The rules of `[scenes]`. Raises `Fatal` (exit 2) if settings contradict each other."""
    check(scenes)
    kind, _, leader = scenes.anchor.partition(":")
    usual = LEARNED if kind == "rhythm" else GRID_MS
    return Rules(
        period_ms=usual if scenes.period_ms == "auto" else scenes.period_ms,
        tolerance_ms=None if scenes.tolerance_ms == "auto" else scenes.tolerance_ms,
        offsets_ms=scenes.offsets_ms,
        anchor=cast("Anchor", kind),
        leader=leader or None,
        patience_ms=scenes.patience_ms,
        quorum=scenes.quorum,
        deadline_ms=scenes.deadline_ms,
        ahead_ms=scenes.ahead_ms,
        lease_ms=scenes.lease_ms,
        late=scenes.late,
        listed={} if scenes.members == "learned" else scenes.members,
        max_open=scenes.max_open,
        max_members=scenes.max_members,
        max_sites=most_sites,
        model=scenes.model,
        forget_ms=scenes.forget_ms,
    )


def check(scenes: config.Scenes) -> None:
    """Raises `Fatal` (exit 2) if a setting is wrong, or if settings contradict each other."""
    try:
        groups = re.compile(scenes.site).groupindex
    except re.error as error:
        raise _wrong(
            "site",
            f"= {scenes.site!r} is no regular expression ({error}); write one with the groups "
            "(?P<site>...) and (?P<member>...)",
        ) from None
    if not {"site", "member"} <= groups.keys():
        raise _wrong(
            "site", f"= {scenes.site!r} needs the groups (?P<site>...) and (?P<member>...)"
        )
    is_leader = scenes.anchor.startswith(LEADER) and len(scenes.anchor) > len(LEADER)
    if scenes.anchor not in ("rhythm", "grid", "smallest") and not is_leader:
        raise _wrong(
            "anchor",
            f"= {scenes.anchor!r} is unknown; write rhythm, grid, smallest or leader:MEMBER",
        )
    if scenes.inline is not None and scenes.inline and not scenes.inline.startswith("/"):
        raise _wrong(
            "inline",
            f'= {scenes.inline!r} is no JSON pointer; write one like "/score", or "" for the whole',
        )
    if scenes.input_topic in (scenes.topic, scenes.late_topic):
        raise _wrong(
            "input_topic",
            f"= {scenes.input_topic!r} is read; scenes.topic and scenes.late_topic must be others",
        )


def _wrong(key: str, what: str) -> Fatal:
    return usage(f"scenes.{key} {what}")
