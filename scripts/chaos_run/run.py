"""One run: store the objects, start the workers, announce objects and cause faults at the plan's
times, wait until all is committed, stop the workers, have the topics judged.

Rule: a run has a time limit, and every worker has ended when `chaos` returns or raises. If a run
did not come to its end, the `Outcome` says why. Owner: the command line.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from chaos_run.faults import Faults, Struck
from chaos_run.output_watch import Watch, watching
from chaos_run.plan import PARTITIONS, Plan
from chaos_run.poison import message
from chaos_run.row_pool import make_pool, store
from chaos_run.services_under_test import Place, producing
from chaos_run.workers import Crew, Exit
from penstock.adapters.kafka.positions_from_outside import open_groups
from penstock.errors import Transient
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference
from penstock.ports import Commit, Where
from penstock.tools.verify.findings import VerifyReport

WORKERS = 3
# Within this time three workers start at once, or drain at the end, on two busy cores.
START_S = 60.0
# After the last fault `GRACE_S` must be enough for a session and the restart of a service. Rows may
# come as slowly as `SLOW_ROWS_PER_S`, which is a twentieth of the rate of two idle cores.
GRACE_S = 120.0
SLOW_ROWS_PER_S = 5_000
# An object whose transfer always breaks is given up after two minutes. The two minutes begin again
# with every assignment of the object's partition, and the last time may be after the last fault.
CUT_S = 150.0
# A broker of a cluster counts as back when its replicas have caught up. `ROLL_S`: the three brokers
# are restarted in turn.
ROLL_S = 60.0
CATCH_UP_S = 20.0
LOOK_S = 0.3

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """`unfinished`: why the run did not come to its end; None if it came to its end. `most_rows`:
    the most rows that were delivered within one commit interval.
    """

    plan: Plan
    struck: list[Struck]
    exits: list[Exit]
    verdict: VerifyReport
    watch: Watch
    took_s: float
    most_rows: int
    is_exactly_once: bool
    unfinished: str | None

    @property
    def duplicates_allowed(self) -> int:
        return 0 if self.is_exactly_once else len(self.struck) * self.most_rows


def timed() -> Tell:
    """A function that prints a line, with the seconds since this call before it."""
    began_s = time.monotonic()
    return lambda what: print(f"{time.monotonic() - began_s:6.1f} s  {what}", flush=True)


def prepare(place: Place, *options: str, buckets: Sequence[str] = ()) -> None:
    """Make the topics, the place's bucket, and the buckets that `buckets` names. Blocks."""
    place.penstock("topics", "create", "--partitions", str(PARTITIONS), *options)
    client = place.s3()
    for bucket in (place.bucket, *buckets):
        client.create_bucket(Bucket=bucket)
    client.close()


async def chaos(plan: Plan, place: Place, tell: Tell) -> Outcome:
    began_s = time.monotonic()
    tell(f"storing {len(plan.objects):,} objects of {plan.rows:,} rows")
    pool = await make_pool(place)
    await store(place, pool, plan)
    unfinished: str | None = None
    async with watching(place, pool, plan.objects) as watch, asyncio.TaskGroup() as tasks:
        crew = Crew(place, tasks)
        faults = Faults(place, crew, watch)
        limit_s = START_S + plan.length_s + GRACE_S + plan.rows / SLOW_ROWS_PER_S
        limit_s += CUT_S if plan.poisons else 0.0
        limit_s += ROLL_S * sum(
            fault.kind in ("restart kafka", "lose broker") for fault in plan.faults
        )
        try:
            async with asyncio.timeout(limit_s):
                await _until_done(plan, place, crew, faults, watch, tell)
        except TimeoutError:
            unfinished = f"not done within {limit_s:.0f} s"
        finally:
            crew.end()
        await _caught_up(watch, plan)
    verdict = await asyncio.to_thread(_verify, place)
    interval_ms = place.config.delivery.commit_interval_ms
    return Outcome(
        plan=plan,
        struck=faults.struck,
        exits=crew.exits,
        verdict=verdict,
        watch=watch,
        took_s=time.monotonic() - began_s,
        most_rows=watch.most_rows_in(interval_ms),
        is_exactly_once=place.is_exactly_once,
        unfinished=unfinished,
    )


async def _until_done(
    plan: Plan, place: Place, crew: Crew, faults: Faults, watch: Watch, tell: Tell
) -> None:
    for _ in range(WORKERS):
        crew.join()
    await crew.assigned()
    tell(f"{WORKERS} workers have their partitions; {plan.length_s:.0f} s of faults begin")
    begun_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_announce(plan, place, begun_s))
        for number, fault in enumerate(plan.faults, start=1):
            await _at(begun_s + fault.at_s)
            tasks.create_task(faults.strike(fault))
            tell(
                f"fault {number} of {len(plan.faults)}: {fault.kind}; "
                f"{watch.new:,} rows, {watch.repeated:,} again"
            )
    tell("all faults are over; waiting for the rest")
    await _all_committed(place)
    await crew.dismiss()


async def _announce(plan: Plan, place: Place, begun_s: float) -> None:
    topic = place.config.kafka.input_topic
    async with producing(place.config.kafka) as producer:
        # The producer asks for the topic's partitions now. Later it might ask a broker that has
        # just started, and such a broker denies for a moment that the topic exists.
        await producer.partitions_for(topic)
        for at_s, partition, value in sorted(_messages(plan, place)):
            await _at(begun_s + at_s)
            await producer.send(topic, value, partition=partition)


def _messages(plan: Plan, place: Place) -> Iterator[tuple[float, int, bytes]]:
    """Each message with its time and partition."""
    for one in plan.objects:
        reference = Reference(bucket=place.bucket, key=one.key, stream=one.stream)
        yield one.at_s, one.partition, encode_reference(reference)
    for poison in plan.poisons:
        yield poison.at_s, poison.partition, message(poison, place.bucket)


async def _at(time_s: float) -> None:
    await asyncio.sleep(max(0.0, time_s - time.monotonic()))


async def _all_committed(place: Place) -> None:
    """Wait until everything that was announced is committed. To be called when no service is down
    any more.
    """
    kafka = place.config.kafka
    parts = [Where(kafka.input_topic, number) for number in range(PARTITIONS)]
    none = Commit(0)
    async with open_groups(kafka) as groups:
        while True:
            with suppress(Transient):
                ends, at = await groups.ends(parts), await groups.positions(kafka.group, parts)
                if all(at.get(part, none).next_offset >= end for part, end in ends.items()):
                    return
            await asyncio.sleep(LOOK_S)


async def _caught_up(watch: Watch, plan: Plan) -> None:
    """Wait until the watch has read all rows, but not for ever, because a lost row never comes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CATCH_UP_S):
            while watch.new < plan.rows:
                await asyncio.sleep(LOOK_S)


def _verify(place: Place) -> VerifyReport:
    """Run the judge by the command that any user has."""
    _, output = place.penstock("verify", "--json")
    (place.folder / "verify.json").write_text(output)
    return msgspec.json.decode(output, type=VerifyReport)
