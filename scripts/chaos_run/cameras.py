"""The cameras of several sites: which camera speaks at which instant, by which clock, and what it
says.

Their clocks are skewed and their records jitter. One member is idle, one comes and goes, and some
rows are rejected.

Rule: a prediction's content follows from its site, member and instant alone. Owner: the run.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import orjson

# How far the clocks differ at most, and how long after its instant a record comes at most.
SKEW_MS = 20
JITTER_MS = 15
REJECTED_EVERY = 50
# The member that comes and goes is there for this time, then away for the same time.
FLAPS_MS = 4_000
PARTITIONS = 4


@dataclass(frozen=True)
class Shape:
    sites: int
    members: int
    hz: int

    @property
    def period_ms(self) -> int:
        return 1000 // self.hz

    def streams(self) -> list[tuple[str, str]]:
        return [
            (f"site-{site}", f"cam-{member}")
            for site in range(self.sites)
            for member in range(self.members)
        ]

    def members_of(self) -> dict[str, list[str]]:
        by_site: dict[str, list[str]] = {}
        for site, member in self.streams():
            by_site.setdefault(site, []).append(member)
        return by_site

    def speaks(self, stream: int, since_ms: int) -> bool:
        """True if this stream speaks at this time. The last stream never speaks, and the stream
        before it comes and goes.
        """
        count = self.sites * self.members
        if stream == count - 1:
            return False
        return stream != count - 2 or since_ms // FLAPS_MS % 2 == 0


def event_time(instant_ms: int, stream: int) -> int:
    """The event time by the camera's own clock, which is wrong by up to half of the skew."""
    return instant_ms + stream * 7 % (SKEW_MS + 1) - SKEW_MS // 2


def said_at(instant: int, instant_ms: int, shape: Shape) -> Iterator[tuple[int, int, str, bytes]]:
    """For each member that speaks at this instant: delay in ms, partition, stream and record."""
    jitter = Random(instant)
    for number, (site, member) in enumerate(shape.streams()):
        if not shape.speaks(number, instant * shape.period_ms):
            continue
        partition, stream = number % PARTITIONS, f"{site}/{member}"
        record = {
            "v": 1,
            "id": f"in/{partition}/{instant}/{number}/0",
            "stream": stream,
            "source": {"topic": "in", "partition": partition, "offset": instant},
            "row": 0,
            "last": True,
            "rows": 1,
            "event_time": event_time(instant_ms, number),
            "model": "rows",
            "prediction": {"label": number, "score": instant % 100 / 100},
        }
        if (instant + number) % REJECTED_EVERY == 0:
            record |= {"prediction": None, "error": {"code": "bad_row", "message": "no number"}}
        yield jitter.randint(0, JITTER_MS), partition, stream, orjson.dumps(record)


def instants(shape: Shape, seconds: int) -> Iterator[tuple[int, int]]:
    """The number of each instant from now on, and its time in epoch milliseconds."""
    began_ms = int(time.time() * 1000) // shape.period_ms * shape.period_ms
    for instant in range(seconds * shape.hz):
        yield instant, began_ms + instant * shape.period_ms


async def until(due_ms: float) -> None:
    await asyncio.sleep(due_ms / 1000 - time.time())


def add_options(parser: argparse.ArgumentParser, *, seconds: int) -> None:
    parser.add_argument("--seconds", type=int, default=seconds, help=f"default {seconds}")
    parser.add_argument("--sites", type=int, default=8, help="default 8")
    parser.add_argument("--members", type=int, default=8, help="of a site; default 8")
    parser.add_argument("--hz", type=int, default=20, help="default 20")
    parser.add_argument("--engine", choices=["penstock", "faust"], default="penstock")


def settings_of(options: argparse.Namespace, shape: Shape) -> dict[str, str]:
    """The settings of a scenes worker, as `SECTION__KEY`."""
    return {
        "SCENES__ENGINE": options.engine,
        "SCENES__ANCHOR": "grid",  # the oracle computes scenes on a grid
        "SCENES__PERIOD_MS": str(shape.period_ms),
        "SCENES__MEMBERS": orjson.dumps(shape.members_of()).decode(),
        "HTTP__PORT": "0",
    }
