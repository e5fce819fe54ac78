"""Decides which offsets are replayed, once, when the replay is first started.

Rule: the range is kept in the commits of a group that never has members, `<group>.range`: the
committed offset of a partition is its end; the metadata has the beginning and the options. The same
command started again replays the same records; with other options it is refused.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.adapters.kafka.positions_from_outside import Groups
from penstock.adapters.kafka.reader import Reader
from penstock.errors import usage
from penstock.ports import Commit, Where
from penstock.tools.replay.worker_settings import Plan, ReplayOptions

log = logging.getLogger(__name__)

# The metadata of a commit may have at most this many bytes, because the broker's limit is 4,096.
MAX_BYTES = 4_000


class OffsetSpan(NamedTuple):
    """The offsets from `begin` to `end`, which is not included."""

    begin: int
    end: int

    def done(self, next_offset: int) -> int:
        return min(max(next_offset, self.begin), self.end) - self.begin


Spans = Mapping[Where, OffsetSpan]


class DecidedRanges(NamedTuple):
    """The ranges of a replay, and the time at which it began. `written`: the commits that hold
    both. `kept_in`: the group that has these commits.
    """

    spans: Spans
    begun_ms: int
    kept_in: str
    written: Mapping[Where, Commit]


class _RangeEnd(Struct, forbid_unknown_fields=True):
    """The metadata of the commit that holds the end of a partition's range."""

    v: int
    begin: int
    begun_ms: int
    asked: dict[str, str]


async def decide(plan: Plan, groups: Groups, reader: Reader, now_ms: int) -> DecidedRanges:
    """The range of this replay. If none is written down, a new one is decided and written down. If
    the replay's group has no position in a partition, it gets one: the beginning of the partition's
    range. A partition that was added to the topic after the decision has no range.
    """
    topics = await reader.inputs()
    parts = [Where(topic, number) for topic in topics for number in await reader.spans(topic)]
    kept_in = f"{plan.group}.range"
    if not (written := await groups.positions(kept_in, parts)):
        fresh = await _as_of_now(plan.options, reader, topics)
        await groups.begin(kept_in, _commits(fresh, plan.options, now_ms))
        written = await groups.positions(kept_in, parts)
    decided = {part: _read(commit, plan) for part, commit in written.items()}
    spans = {
        part: OffsetSpan(decision.begin, written[part].next_offset)
        for part, decision in decided.items()
    }
    known = await groups.positions(plan.group, list(spans))
    begins = {part: Commit(span.begin) for part, span in spans.items() if part not in known}
    await groups.begin(plan.group, begins)
    return DecidedRanges(
        spans, min(decision.begun_ms for decision in decided.values()), kept_in, written
    )


async def _as_of_now(options: ReplayOptions, reader: Reader, topics: list[str]) -> Spans:
    spans: dict[Where, OffsetSpan] = {}
    for topic in topics:
        there = await reader.spans(topic)
        by_time = await reader.spans_since(topic, options.since_ms, options.until_ms)
        for number, (begin, end) in by_time.items():
            spans[Where(topic, number)] = OffsetSpan(begin, end)
            if begin == there[number][0] > 0:
                log.warning(
                    "%s/%d: the records before offset %d are gone; the range may have begun "
                    "earlier",
                    *(topic, number, begin),
                )
    return spans


def _commits(spans: Spans, options: ReplayOptions, now_ms: int) -> dict[Where, Commit]:
    ranges = {}
    for part, span in spans.items():
        metadata = msgspec.json.encode(_RangeEnd(1, span.begin, now_ms, options.identity)).decode()
        if len(metadata.encode()) > MAX_BYTES:
            raise usage(
                "--streams: these globs are too long to be written down with the range; "
                "use fewer, or a shorter one that covers them"
            )
        ranges[part] = Commit(span.end, metadata)
    return ranges


def _read(commit: Commit, plan: Plan) -> _RangeEnd:
    """Decode the metadata of a commit. Raises `Fatal` (exit 2) if the replay was begun with other
    options.
    """
    options = plan.options
    another = f"or give this one another --name than {options.named}"
    try:
        written = msgspec.json.decode(commit.metadata, type=_RangeEnd)
    except (msgspec.MsgspecError, ValueError):
        raise usage(
            f"group {plan.group}.range holds no range of a replay ({commit.metadata:.80}); delete "
            f"that group, {another}"
        ) from None
    for option, now in options.identity.items():
        before = written.asked.get(option, "")
        if before != now:
            raise usage(
                f"replay {options.named} was begun with {option} {before or '(not given)'}, not "
                f"{now or 'without it'}: go on with that, {another}"
            )
    return written
