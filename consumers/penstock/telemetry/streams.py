"""For each of any number of streams, what was delivered and rejected lately.

Rule: to add an object costs less than a microsecond; which streams are shown, those in most
trouble, is decided only when a page asks. Above `MOST_STREAMS` streams, or `MOST_NAME_CHARS` of
names, those silent longest are forgotten.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set
from heapq import nlargest
from math import log1p
from typing import Any, Final, NamedTuple

from penstock.core.rows.origin import Where
from penstock.telemetry.recent import (
    MINUTE,
    STEPS,
    WINDOW_S,
    Counts,
    Recent,
    add,
    quantiles_ms,
    window_of,
)

SHOWN: Final = 20
OTHERS: Final = "*others*"
# The figures of at most this many streams are kept. A stream takes about 3 kB.
MOST_STREAMS: Final = 5_000
# Their names may have this many characters together: a name may have 4,096.
MOST_NAME_CHARS: Final = 1 << 20
# A stream that was silent for this many windows (an hour) is forgotten.
SILENT_WINDOWS: Final = 360


class Owed(NamedTuple):
    """How many objects of a stream are read from Kafka but not answered yet, and the ages of the
    oldest and of the newest of them.
    """

    objects: int
    age_s: float
    newest_s: float
    where: Where | None


# A stream came regularly if its records tell of this many moments, over at least this time, and
# of no pause longer than a third of that time. Lists, uploads and backlogs do so, too, for a while,
# and then end: they come faster than any sensor; or their pauses vary (by chance alone, as much as
# their mean); or they are read much faster than they were written.
REGULAR_MOMENTS: Final = 10
REGULAR_S: Final = 20.0
LEAST_EVERY_S: Final = 0.02
MOST_VARIATION: Final = 0.6
LIVE_TIMES: Final = 2.0
# The rhythm is that of about this many pauses. A pause counts as at most so many usual ones, and at
# least as that part of one: a late record changes no rhythm, nor do some that were sent at once.
RHYTHM_PAUSES: Final = 64
OTHER_PAUSE: Final = 3.0
# A regular stream is silent after this many of its longest pauses, and at least `SILENT_S`.
SILENT_PAUSES: Final = 4
SILENT_S: Final = 5.0
# The longest pause is that of this many windows (five minutes) and of as many before them.
PAUSE_WINDOWS: Final = 30
# A stream is not slow whose objects of so long were on time, whatever came before in its window.
WORST_S: Final = 5.0
# At most this many silent streams are named.
SILENT_NAMED: Final = 3

NOTHING_OWED: Final = Owed(0, 0.0, 0.0, None)


class StreamFigures(Recent):
    """The figures of one stream. `rejected`: how many of its rows and objects were answered by an
    error. `worst_s`: the longest latency of the last `WORST_S` or less. `heard_s`: when its last
    record was answered, by our own clock: the clock that stamps its records may be wrong, or tell
    when a picture was taken.
    """

    __slots__ = (
        "_every_s",
        "_first_written_s",
        "_pause_before_s",
        "_pauses_of",
        "_read_every_s",
        "_silence_s",
        "_squares",
        "heard_s",
        "last_code",
        "last_message",
        "moments",
        "pause_s",
        "rejected",
        "rejected_window",
        "where",
        "worst_s",
        "worst_until_s",
        "written_s",
    )

    def __init__(self, now_s: float, where: Where | None = None) -> None:
        super().__init__(now_s)
        self.where = where
        self.rejected = 0
        self.rejected_window = -MINUTE
        self.last_code: str | None = None
        self.last_message: str | None = None
        self.worst_s, self.worst_until_s = 0.0, now_s
        self.heard_s = self.written_s = self._first_written_s = now_s
        self.moments = 0
        self._every_s = self._squares = self._read_every_s = 0.0
        self.pause_s = self._pause_before_s = self._silence_s = 0.0
        self._pauses_of = self.window // PAUSE_WINDOWS

    def turn(self, window: int) -> None:
        super().turn(window)
        age = window // PAUSE_WINDOWS - self._pauses_of
        if age:
            self._pause_before_s = self.pause_s if age == 1 else 0.0
            self.pause_s = 0.0
            self._pauses_of += age

    def came(self, written_s: float, now_s: float) -> None:
        """A record was answered. Pauses are told by the records' own times, because those of a
        backlog come together.
        """
        pause_s, read_s = written_s - self.written_s, now_s - self.heard_s
        self.heard_s = now_s
        if pause_s <= 0.0:
            return
        self.written_s = written_s
        self.moments += 1
        if pause_s > self.pause_s and not self._goes_on(pause_s):
            return
        share = 1.0 / min(self.moments, RHYTHM_PAUSES)
        if self._every_s:
            pause_s = min(pause_s, OTHER_PAUSE * self._every_s)
            pause_s = max(pause_s, self._every_s / OTHER_PAUSE)
        self._every_s += (pause_s - self._every_s) * share
        self._squares += (pause_s * pause_s - self._squares) * share
        self._read_every_s += (read_s - self._read_every_s) * share

    def _goes_on(self, pause_s: float) -> bool:
        """Its longest pause of the last minutes has ended. If it was silent, that time does not
        count as time in which it came; and one silence is no rhythm, but a second one like it is.
        """
        if pause_s > max(SILENT_S, SILENT_PAUSES * self.longest_pause_s):
            self._first_written_s += pause_s
            before_s, self._silence_s = self._silence_s, pause_s
            if before_s < pause_s / 2:
                return False
        self.pause_s = pause_s
        return True

    @property
    def longest_pause_s(self) -> float:
        return max(self.pause_s, self._pause_before_s)

    @property
    def every_s(self) -> float | None:
        """How long it is between two of its records. None: it did not come regularly."""
        whole_s, every_s = self.written_s - self._first_written_s, self._every_s
        is_regular = (
            self.moments >= REGULAR_MOMENTS
            and whole_s >= REGULAR_S
            and self.longest_pause_s <= whole_s / 3
            and every_s >= LEAST_EVERY_S
            and self._squares <= (1.0 + MOST_VARIATION**2) * every_s**2
            and every_s <= LIVE_TIMES * self._read_every_s
        )
        return every_s if is_regular else None

    def silent_s(self, now_s: float) -> float:
        """For a stream that came regularly: for how long it has been silent."""
        return now_s - self.heard_s - max(SILENT_S, SILENT_PAUSES * self.longest_pause_s)


class Told(NamedTuple):
    """What the pages show of streams. `streams`: those in most trouble, the worst first. `known`:
    how many streams there are. `others`: the sum of all streams that are not in `streams`; None if
    there are no such streams. `silence`: how many streams came regularly (`regular`), how many of
    these say nothing (`count`), and some of them (`streams`), those that came most often first.
    """

    streams: list[dict[str, Any]]
    known: int
    others: dict[str, Any] | None
    silence: dict[str, Any]


class Streams:
    """The figures of each stream. `whole` has the figures of all streams together; `count` brings
    `whole` up to date.
    """

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._window = -1
        self._ends_s = 0.0
        self._streams: OrderedDict[str, StreamFigures] = OrderedDict()
        self._name_chars = 0
        self._buckets: list[int] = []
        self.whole = Recent(0.0)
        self._rejected = 0

    def delivered(
        self, stream: str, where: Where, rows: int, latency_s: float | None, now_s: float
    ) -> None:
        """Note that rows of an object were written to the output topic. `latency_s`: the object's
        latency if its last row is among these rows; else None.
        """
        if now_s >= self._ends_s:
            self.turn(now_s)
        figures = self._streams.get(stream)
        if figures is None or figures.window != self._window:
            figures = self._begun(stream, figures, now_s)
        figures.where = where
        figures.rows += rows
        self.whole.rows += rows
        if latency_s is None:
            return
        bucket = int(log1p(latency_s * 1000.0) * STEPS)
        counts = figures.counts
        if latency_s >= figures.worst_s or now_s >= figures.worst_until_s:
            figures.worst_s, figures.worst_until_s = latency_s, now_s + WORST_S
        figures.came(now_s - latency_s, now_s)
        figures.objects += 1
        counts[bucket] = counts.get(bucket, 0) + 1
        self._buckets.append(bucket)

    def rejected(
        self, stream: str, where: Where, code: str, message: str, rows: int, now_s: float
    ) -> None:
        self.turn(now_s)
        figures = self._streams.get(stream) or self._begun(stream, None, now_s)
        figures.where = where
        figures.rejected += rows
        figures.rejected_window = self._window
        figures.last_code, figures.last_message = code, message
        self._rejected += rows

    def turn(self, now_s: float) -> None:
        """Begin the next window if it is time, and forget streams that were silent for an hour."""
        window = window_of(now_s)
        if window <= self._window:
            return
        if self._window < 0:
            self.whole = Recent(now_s)
        else:
            self._count_whole()
            self.whole.turn(window)
        self._window, self._ends_s = window, (window + 1) * WINDOW_S
        # The streams are in the order in which they last began a window, so the first one was
        # silent longest.
        while self._streams:
            first = next(iter(self._streams.values()))
            if first.window > window - SILENT_WINDOWS:
                return
            self._forget_first()

    def _begun(self, stream: str, figures: StreamFigures | None, now_s: float) -> StreamFigures:
        """The figures of a stream that is new, or had no delivery in this window yet."""
        if figures is not None:
            figures.turn(self._window)
            self._streams.move_to_end(stream)
            return figures
        self._name_chars += len(stream)
        while self._streams and (
            len(self._streams) >= self._most or self._name_chars > MOST_NAME_CHARS
        ):
            self._forget_first()
        figures = self._streams[stream] = StreamFigures(now_s)
        return figures

    def _forget_first(self) -> None:
        name, _ = self._streams.popitem(last=False)
        self._name_chars -= len(name)

    def count(self, now_s: float) -> None:
        """Add the latencies since the last `count` to the figures of the whole. To add them in bulk
        takes a fifth of the time of adding them one by one.
        """
        self.turn(now_s)
        self._count_whole()

    def _count_whole(self) -> None:
        buckets, self._buckets = self._buckets, []
        self.whole.objects += len(buckets)
        add(self.whole.counts, Counter(buckets))

    def told(
        self,
        owed: Mapping[str, Owed],
        stopped: Set[str],
        now_s: float,
        read: Set[Where] = frozenset(),
    ) -> Told:
        """What the pages show. `owed`: for each stream, its objects that are not answered yet;
        `stopped`: the streams that stand still at a dead letter; `read`: the partitions that were
        read to their end, so that a stream of theirs that owes nothing has said nothing.
        """
        self.count(now_s)
        silent, regular = self._silent(owed, read, now_s)
        worst = self._worst(owed, stopped)
        shown = [self._shown(name, owed.get(name, NOTHING_OWED), now_s) for name in worst]
        streams = [
            {
                **_figures(row), **_rejections(row.figures), **_heard(row, read, now_s),
                **_place(row.figures.where), "stopped": row.name in stopped,
                "is_silent": row.name in silent, "spark": row.figures.p99s_ms(now_s),
            }
            for row in shown
        ]  # fmt: skip
        named = sorted(silent.items(), key=lambda entry: entry[1][1])[:SILENT_NAMED]
        silence = {
            "streams": [
                {"stream": name, "heard_s": heard_s, "every_s": every_s, "beyond_s": beyond_s}
                for name, (heard_s, every_s, beyond_s) in named
            ],
            "count": len(silent),
            "regular": regular,
        }
        known = len(self._streams) + sum(name not in self._streams for name in {*owed, *stopped})
        if known == len(worst):
            return Told(streams, known, None, silence)
        rest = [owed_stream for name, owed_stream in owed.items() if name not in worst]
        others = self._others(shown, rest, stopped - set(worst), now_s)
        return Told(streams, known, others, silence)

    def _silent(
        self, owed: Mapping[str, Owed], read: Set[Where], now_s: float
    ) -> tuple[dict[str, tuple[float, float, float]], int]:
        """Returns the silent streams, each with the time since it was heard, the usual time between
        its records, and for how long it is silent; and how many streams came regularly.
        """
        silent: dict[str, tuple[float, float, float]] = {}
        regular = 0
        for name, stream in self._streams.items():
            if (every_s := stream.every_s) is not None and stream.where in read:
                regular += 1
                if (silent_s := stream.silent_s(now_s)) > 0.0 and name not in owed:
                    heard_s = now_s - stream.heard_s
                    silent[name] = round(heard_s, 1), round(every_s, 3), round(silent_s, 1)
        return silent, regular

    def _worst(self, owed: Mapping[str, Owed], stopped: Set[str]) -> list[str]:
        """The names of the streams in most trouble: first those that stopped, then those with the
        oldest unanswered object, then those with rejections, then the slowest. Ages are compared in
        whole seconds. So streams that are on time are equal by their ages, and the slowest of them
        comes first.
        """
        since, streams = self._window - MINUTE, self._streams
        ages_s = {
            name: int(owed_stream.age_s)
            for name, owed_stream in owed.items()
            if owed_stream.age_s >= 1.0
        }
        ranks = [
            (
                name in stopped,
                ages_s.get(name, 0),
                stream.rejected_window > since,
                stream.p99_ms if stream.window > since else 0.0,
                name,
            )
            for name, stream in streams.items()
        ]
        quiet = {*owed, *stopped}.difference(streams)
        ranks += [(name in stopped, ages_s.get(name, 0), False, 0.0, name) for name in quiet]
        return [name for *_, name in nlargest(SHOWN, ranks)]

    def _shown(self, name: str, owed: Owed, now_s: float) -> "_Shown":
        figures = self._streams.get(name) or StreamFigures(now_s, owed.where)
        return _Shown(name, figures, figures.minute(now_s), figures.rates(now_s), owed)

    def _others(
        self, shown: list["_Shown"], owed: list[Owed], stopped: Set[str], now_s: float
    ) -> dict[str, Any]:
        """The figures of the whole minus those of the streams that are shown."""
        counts = self.whole.minute(now_s)
        objects, rows = self.whole.rates(now_s)
        for row in shown:
            add(counts, row.minute, sign=-1)
            objects, rows = objects - row.rates[0], rows - row.rates[1]
        ages_s = (owed_stream.age_s for owed_stream in owed)
        together = Owed(
            sum(owed_stream.objects for owed_stream in owed), max(ages_s, default=0.0), 0.0, None
        )
        rest = StreamFigures(now_s)
        rest.rejected = self._rejected - sum(row.figures.rejected for row in shown)
        rates = (max(0.0, objects), max(0.0, rows))
        return {
            **_figures(_Shown(OTHERS, rest, counts, rates, together)),
            **_rejections(rest),
            **_place(None),
            "stopped": bool(stopped),
        }


def _place(where: Where | None) -> dict[str, Any]:
    return {"topic": None, "partition": None} if where is None else where._asdict()


class _Shown(NamedTuple):
    name: str
    figures: StreamFigures
    minute: Counts
    rates: tuple[float, float]
    owed: Owed


def _figures(row: _Shown) -> dict[str, Any]:
    p50_ms, p99_ms = quantiles_ms(row.minute, 0.5, 0.99)
    return {
        "stream": row.name,
        "objects_per_s": round(row.rates[0], 2),
        "rows_per_s": round(row.rates[1], 1),
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "now_p99_ms": _now_p99_ms(row.figures),
        "age_s": round(row.owed.age_s, 1),
        "owed": row.owed.objects,
    }


def _now_p99_ms(figures: StreamFigures) -> float | None:
    p99_ms = figures.now_p99_ms
    return None if p99_ms is None else min(p99_ms, round(figures.worst_s * 1000, 1))


def _heard(row: _Shown, read: Set[Where], now_s: float) -> dict[str, float | None]:
    """`heard_s`: since its last record; None while its records may wait in Kafka. What it owes was
    heard after what was answered.
    """
    silent_s = max(0.0, now_s - row.figures.heard_s)
    if row.owed.objects:
        silent_s = max(0.0, min(silent_s, row.owed.newest_s))
    every_s = row.figures.every_s
    return {
        "heard_s": round(silent_s, 1) if row.figures.where in read else None,
        "every_s": None if every_s is None else round(every_s, 3),
    }


def _rejections(figures: StreamFigures) -> dict[str, Any]:
    return {
        "rejected": figures.rejected,
        "last_code": figures.last_code,
        "last_message": figures.last_message,
    }
