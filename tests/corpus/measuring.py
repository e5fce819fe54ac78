"""`python -m tests.corpus.measuring`: runs cases in this process and says by how much it grew.

Rule: the peak of resident memory is the kernel's; small cases run one after the other in a warm
process, each other in a fork of it, so that it finds no room that another one left. What a case
sends is in memory before, and what is published is thrown away, as a broker keeps nothing in our
memory. Each heavy case is run well, and with one service away, in turn; EVERY_SERVICE=1 takes each
away from each. One line of JSON a case: name, services, bytes sent, bytes grown. Owner: the test
that starts it.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.adapters.memory import MemorySink
from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import Payload
from penstock.ports import Answers, Location, Outgoing
from penstock.tools.simulation.virtual_time import VirtualTimeLoop
from tests.corpus.archives import ARCHIVES, BOMBS
from tests.corpus.cases import Stored
from tests.corpus.heavy import HEAVY, Heavy, answers
from tests.corpus.messages import MESSAGES
from tests.corpus.objects import OBJECTS
from tests.support.pipelines import BUCKET, World, csv, running, until

AWAY = ("no model", "no broker", "no first object")
EVERY_SERVICE = "EVERY_SERVICE" in os.environ
# Long enough for all that goes on without the missing service to be read, decoded and held.
AWAY_S = 3.0
RESET_PEAK = "5"
FIRST = "first.csv"

Ask = Callable[[Sequence[Payload]], Awaitable[Answers]]


class Discarding(MemorySink):
    """Takes records and keeps none."""

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        delivery = await super().send(outgoing)
        self.topics.clear()
        self.headers.clear()
        return delivery


def small() -> Iterator[Heavy]:
    for message in MESSAGES:
        yield Heavy(message.name, (message.value,))
    for stored in [*OBJECTS, *ARCHIVES]:
        yield _heavy(stored)


def large() -> Iterator[tuple[Heavy, Sequence[str]]]:
    """With the services that are away."""
    for stored in BOMBS:
        yield _heavy(stored), ("well",)
    for number, case in enumerate(HEAVY):
        yield case, ("well", *(AWAY if EVERY_SERVICE else AWAY[number % 3 : number % 3 + 1]))
    together = list(small())
    yield (
        Heavy(
            "all small ones together",
            tuple(value for case in together for value in case.messages),
            tuple((f"{number}/{key}", data) for number, case in enumerate(together)
                  for key, data in case.objects),
        ),
        AWAY,
    )  # fmt: skip


def _heavy(stored: Stored) -> Heavy:
    return Heavy(stored.name, (), ((stored.key, stored.body()),), stored.options)


def world_of(case: Heavy, services: str) -> World:
    made = World().with_settings(rows=case.options, line=LineLimits(0.0, 0))
    made.sink = Discarding(partitions=1)
    made.objects.put(BUCKET, "ok.csv", b"1,2\n3,4\n")
    if services == "no first object":
        made.announce(FIRST, csv(1))
    for key, data in case.objects:
        made.objects.put(BUCKET, key, data)
        if case.announces:
            made.announce(key)
    for message in case.messages:
        made.source.append(message)
    return made


async def _live(world: World, services: str, ask: Ask) -> None:
    async def never(_: object) -> Answers:
        await asyncio.Event().wait()
        raise AssertionError

    async def not_the_first(location: Location) -> None:
        if location.key == FIRST:
            await asyncio.Event().wait()

    world.model.script = never if services == "no model" else ask
    world.sink.hold = services == "no broker"
    world.objects.on_open = not_the_first
    if services == "well":
        end = len(world.source.records[0])
        async with running(world):
            await until(lambda: world.next_offset() == end, within_s=36_000)
        return
    world.with_settings(drain_s=0.0)
    with suppress(TimeoutError):
        async with asyncio.timeout(AWAY_S), running(world):
            await asyncio.Event().wait()


def grown_bytes(case: Heavy, services: str) -> int:
    """By how much resident memory grew at most."""
    world = world_of(case, services)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_live(world, services, partial(answers, case.says)))
    return max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def in_a_fork(case: Heavy, services: str) -> int | None:
    """None: it ended."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, b"%d" % grown_bytes(case, services))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return int(text) if text else None


def main() -> None:
    quoted = b'"1",2\n' * 1_000
    warm = (("a.csv", csv(5_000)), ("b.csv", quoted), ("c.csv.gz", b""), ("d.json", b"[[1]]"))
    grown_bytes(Heavy("warm", (), warm), "well")
    gc.collect()
    gc.freeze()  # so that the collection before each case does not go through all modules again
    for case in small():
        tell(case, "well", grown_bytes(case, "well"))
    for case, services in large():
        for away in services:
            tell(case, away, in_a_fork(case, away))


def tell(case: Heavy, services: str, grown: int | None) -> None:
    sys.stdout.write(json.dumps([case.name, services, case.sent_bytes, grown]) + "\n")


if __name__ == "__main__":
    main()
