"""Objects whose every row the model refuses: what they cost, and what they cost the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Rejected
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until
from tests.support.sick_models import row, values_of

STREAMS = 12
TICK_S = 0.1
# Rows that begin with a number from here on are refused, too.
BAD = 1_000_000


def wide(rows: int) -> bytes:
    """Rows of a width that the model refuses."""
    return b"".join(b"%d,1,2\n" % number for number in range(rows))


SHARING = csv(5_000, start=BAD)


@dataclass
class OneWorker:
    """A server with one worker process, which takes its time; keeps what was asked when."""

    call_s: float = 0.002
    row_s: float = 0.000_005
    refused: int = 0
    answered: int = 0
    worker: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, payloads: Sequence[Payload]) -> Answers | None:
        values = values_of(payloads)
        is_refused = any(
            isinstance(payload, Matrix) and payload.values.shape[1] != 2 for payload in payloads
        )
        async with self.worker:
            await asyncio.sleep(self.call_s + len(values) * self.row_s)
        if is_refused or any(value >= BAD for value in values):
            self.refused += 1
            raise Rejected("model_rejected", "503 InternalServerException: Prediction failed")
        self.answered += 1
        return None


@virtual_time
async def worst_good_s(
    files: Sequence[bytes], calls: int, *, seconds: float = 4.0, bad: bool = True
) -> tuple[float, OneWorker]:
    """12 streams of 8 rows at 10 Hz, and files, bad ones or good, which come after a second; how
    long the slowest small object took from its announcement to its last record.
    """
    world = World(partitions=STREAMS + len(files)).with_settings(
        window=WindowLimits(512, 1 << 20, 0.010), buffer_bytes=1 << 24, callers=calls
    )
    world.model.script = server = OneWorker()
    announced: dict[int, list[float]] = {number: [] for number in range(STREAMS)}
    took_s: list[float] = []

    async def stream(number: int) -> None:
        await asyncio.sleep(number * TICK_S / STREAMS)
        for tick in range(int(seconds / TICK_S)):
            world.announce(f"{number}-{tick}.csv", csv(8), partition=number, stream=f"s{number}")
            announced[number].append(world.clock.now())
            await asyncio.sleep(TICK_S)

    async def look() -> None:
        done = dict.fromkeys(range(STREAMS), 0)
        ticks = int(seconds / TICK_S)
        while any(count < ticks for count in done.values()):
            for number in done:
                topic = world.sink.topics["predictions"][number]
                while done[number] < len(announced[number]) and len(topic) >= 8 * (
                    done[number] + 1
                ):
                    took_s.append(world.clock.now() - announced[number][done[number]])
                    done[number] += 1
            await asyncio.sleep(0.001)

    async with running(world):
        async with asyncio.TaskGroup() as tasks:
            for number in range(STREAMS):
                tasks.create_task(stream(number))
            tasks.create_task(look())
            await asyncio.sleep(1.0)
            for number, data in enumerate(files):
                world.announce(f"bad{number}.csv", data, partition=STREAMS + number)
        await until(
            lambda: all(world.next_offset(STREAMS + number) for number in range(len(files))),
            within_s=600.0,
        )
    for number, data in enumerate(files):
        records = world.records(STREAMS + number)
        assert len(records) == data.count(b"\n")
        codes = {record["error"]["code"] if "error" in record else None for record in records}
        assert codes == {"model_rejected" if bad else None}
    for number in range(STREAMS):
        assert all("error" not in record for record in world.records(number))
    return max(took_s), server


@cache
def usual_s(calls: int, good_files: int = 0) -> float:
    """Without bad objects."""
    return worst_good_s([csv(5_000)] * good_files, calls, bad=False)[0]


@pytest.mark.parametrize("calls", [1, 2, 4])
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([wide(2_500)], id="2,500 rows of another width"),
        pytest.param([wide(5_000)], id="5,000 rows of another width"),
        pytest.param([wide(5_000)] * 12, id="12 objects of 5,000 such rows"),
        pytest.param([SHARING], id="5,000 rows that share batches"),
        pytest.param([SHARING] * 12, id="12 objects of rows that share batches"),
    ],
)
def test_good_streams_hardly_notice_bad_objects(bad: list[bytes], calls: int) -> None:
    beside_s, server = worst_good_s(bad, calls)
    # Twelve files at once fill every call: as many good ones are the measure.
    are_calls_full = len(bad) > 1 and bad[0] == SHARING
    assert beside_s <= 3 * usual_s(calls, len(bad) if are_calls_full else 0)
    assert beside_s < 0.5
    assert server.refused < 300 * len(bad)


@pytest.mark.parametrize("has_canary", [True, False])
@pytest.mark.parametrize("max_rows", [8, 64, 512])
def test_5000_refused_rows_cost_less_than_300_requests(max_rows: int, *, has_canary: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(
            window=WindowLimits(max_rows, 1 << 20, 0.010),
            buffer_bytes=1 << 24,
            canary=row(1.0) if has_canary else None,
        )
        world.model.script = server = OneWorker()
        world.announce("bad.csv", wide(5_000))
        await run_to_end(world, 1)
        assert [record["row"] for record in world.records()] == list(range(5_000))
        assert all(record["error"]["code"] == "model_rejected" for record in world.records())
        assert server.refused + server.answered < 300

    scenario()
