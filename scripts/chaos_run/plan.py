"""The plan of a run, made from its seed alone: which objects are announced and which faults happen,
with their times.

Rule: the same arguments always give the same plan. Most objects are small and come all the time.
The large objects, which have most of the rows, come just before a fault, so that faults hit them.
Owner: the run.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from chaos_run import poison
from chaos_run.poison import Poison

Kind = Literal[
    "kill",
    "freeze",
    "terminate",
    "join",
    "kill model worker",
    "restart kafka",
    "restart minio",
    "restart torchserve",
    "crash kafka",
    "cut kafka",
    "mute kafka",
    "deaf kafka",
    "cut broker",
    "cut store",
    "mute store",
    "deaf store",
    "cut model",
    "mute model",
    "deaf model",
    "lose broker",
    "roll workers",
]
Form = Literal["csv", "csv.gz", "tar.gz"]

# The deck of faults. It is shuffled and dealt again and again, until there are enough faults.
ALL_KINDS: tuple[Kind, ...] = (
    "kill",
    "kill",
    "freeze",
    "terminate",
    "join",
    "kill model worker",
    "restart kafka",
    "restart minio",
    "restart torchserve",
    "crash kafka",
)
# Faults of `--hosts`: between a worker and a service, packets are dropped in both directions
# (`cut`) or in one (`mute`, `deaf`).
CUTS: tuple[Kind, ...] = tuple(
    kind for kind in get_args(Kind) if kind.startswith(("cut ", "mute ", "deaf "))
)
HOST_KINDS: tuple[Kind, ...] = (*CUTS, "lose broker", "restart kafka", "roll workers")
FORMS: tuple[Form, ...] = ("csv", "csv.gz", "tar.gz")

PARTITIONS = 8
STREAMS = 40
LARGEST_ROWS = 200_000
# An object with at least `LARGE_ROWS` rows is large. Large objects have the share `LARGE_SHARE` of
# all rows.
LARGE_ROWS = 2_000
LARGE_SHARE = 0.6
# Seconds between two faults. The group notices a dead worker after 8 s, so some gaps are shorter
# and some are longer than 8 s. After a kill the gap is longer, because the time to the first new
# row is measured. After a freeze the gap begins at the end of the freeze, because the judge allows
# repeats by the worker that was frozen, but not together with repeats by two other workers.
GAP_S = (4.0, 20.0)
GAP_AFTER_KILL_S = (12.0, 20.0)
FIRST_FAULT_S = 4.0
# A large object is announced this long before a fault, so that its rows are on their way then.
LEAD_S = (0.1, 1.0)
# A freeze is longer than the session of 8 s, so the session ends while the worker is frozen.
FROZEN_S = (9.0, 13.0)
VISIT_S = (5.0, 15.0)
# A broker hangs for `HANGS_S` and is killed. It is then away for `CRASH_AWAY_S`, which is longer
# than sessions and most time limits of clients.
HANGS_S = (5.0, 9.0)
CRASH_AWAY_S = 36.0
# Some cuts end before the worker's session does, others end after it.
CUT_S = (1.0, 13.0)
# The cluster notices after 9 s that a broker is gone, so some brokers are back before the cluster
# notices.
LOST_S = (5.0, 20.0)
LENGTHS_S: Mapping[Kind, tuple[float, float]] = {
    "join": VISIT_S,
    "crash kafka": HANGS_S,
    "lose broker": LOST_S,
    **dict.fromkeys(CUTS, CUT_S),
}


class Object(NamedTuple):
    """`first_line`: the line of the pool that is the object's first row. The other rows are the
    lines after it.
    """

    key: str
    stream: str
    partition: int
    rows: int
    first_line: int
    form: Form
    at_s: float


class Fault(NamedTuple):
    """`length_s`: how long a worker is frozen, a broker hangs, or a visitor stays. `victim`: a
    number between 0 and 1 that picks one of the available workers.
    """

    at_s: float
    kind: Kind
    length_s: float
    victim: float


@dataclass(frozen=True)
class Plan:
    """Objects in the order of their announcement, faults in the order of their time."""

    seed: int
    rows: int
    objects: tuple[Object, ...]
    faults: tuple[Fault, ...]
    poisons: tuple[Poison, ...] = ()

    @property
    def length_s(self) -> float:
        return max(self.objects[-1].at_s, self.faults[-1].at_s)


def make(
    seed: int,
    rows: int,
    faults: int,
    *,
    lines: int,
    kinds: Sequence[Kind] = ALL_KINDS,
    gap_s: tuple[float, float] = GAP_S,
    with_poison: bool = False,
) -> Plan:
    """`lines`: how many lines the pool has. `with_poison` needs a store behind `cutting`."""
    dice = random.Random(seed)
    struck = tuple(_faults(dice, faults, kinds, gap_s))
    sizes = list(_sizes(dice, rows))
    end_s = struck[-1].at_s + LEAD_S[1]
    times_s = [_time_s(dice, size, struck, end_s) for size in sizes]
    objects = []
    for number, (at_s, size) in enumerate(sorted(zip(times_s, sizes, strict=True))):
        stream, form = dice.randrange(STREAMS), dice.choice(FORMS)
        objects.append(
            Object(
                key=f"site-{stream}/{number:06}.{form}",
                stream=f"site-{stream}",
                partition=stream % PARTITIONS,
                rows=size,
                first_line=dice.randrange(lines),
                form=form,
                at_s=at_s,
            )
        )
    poisons = poison.make(dice, PARTITIONS, end_s) if with_poison else ()
    return Plan(seed, rows, tuple(objects), struck, poisons)


def _faults(
    dice: random.Random, count: int, kinds: Sequence[Kind], gap_s: tuple[float, float]
) -> Iterator[Fault]:
    at_s, deck = FIRST_FAULT_S, list[Kind]()
    for _ in range(count):
        if not deck:
            deck = dice.sample(kinds, len(kinds))
        kind = deck.pop()
        length_s = dice.uniform(*LENGTHS_S.get(kind, FROZEN_S))
        yield Fault(at_s, kind, length_s, dice.random())
        at_s += dice.uniform(*(GAP_AFTER_KILL_S if kind == "kill" else gap_s))
        if kind in ("freeze", "lose broker", *CUTS):
            at_s += length_s
        elif kind == "crash kafka":
            at_s += length_s + CRASH_AWAY_S


def _sizes(dice: random.Random, rows: int) -> Iterator[int]:
    """Sizes that add up to `rows`. One of them is 1, and one is the largest size."""
    largest = min(LARGEST_ROWS, rows // 5)
    large_rows = int(rows * LARGE_SHARE)
    yield 1
    yield largest
    left = rows - 1 - largest
    while left:
        is_large = left > rows - large_rows
        low, high = (LARGE_ROWS, largest) if is_large else (1, LARGE_ROWS)
        size = min(left, round(low * (high / low) ** dice.random()))
        yield size
        left -= size


def _time_s(dice: random.Random, size: int, faults: Sequence[Fault], end_s: float) -> float:
    if size < LARGE_ROWS:
        return dice.uniform(0, end_s)
    return dice.choice(faults).at_s - dice.uniform(*LEAD_S)
