"""Columns and times of rows, from the object to the record."""

from collections.abc import Sequence

from penstock.adapters.memory import MemorySink
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Rejected
from penstock.formats.runs import RowOptions
from penstock.messages.prediction import decode_prediction
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, run_to_end

ROWS = 150
DATA = b"id,at,a\n" + b"".join(b"n%d,%d,%d\n" % (n, 1_700_000_000 + n, n) for n in range(ROWS))


@virtual_time
async def test_each_record_has_its_own_columns_and_time() -> None:
    rows = RowOptions(keep=("id",), time="at")
    world = World().with_settings(rows=rows, window=WindowLimits(7, 1 << 20, 0.01))
    world.announce("a.csv", DATA, event_time=5)
    await run_to_end(world, 1)
    records = world.records()
    assert [record["columns"] for record in records] == [{"id": f"n{n}"} for n in range(ROWS)]
    times = [(1_700_000_000 + n) * 1000 for n in range(ROWS)]
    assert [record["event_time"] for record in records] == times
    assert (records[-1]["last"], records[-1]["rows"]) == (True, ROWS)
    for _, value in world.sink.topics["predictions"][0]:
        decode_prediction(value)


@virtual_time
async def test_a_row_that_the_model_refuses_keeps_them_too() -> None:
    async def refuse(payloads: Sequence[Payload]) -> Answers | None:
        if any(13.0 in payload.values for payload in payloads):  # type: ignore[attr-defined]
            raise Rejected("model_rejected", "unlucky")
        return None

    world = World().with_settings(rows=RowOptions(keep=("id",), time="at"))
    world.model.script = refuse
    world.announce("a.csv", DATA, event_time=5)
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == list(range(ROWS))
    for row in (12, 14):
        assert world.records()[row]["columns"] == {"id": f"n{row}"}


@virtual_time
async def test_a_row_without_a_time_has_the_reference_s() -> None:
    world = World().with_settings(rows=RowOptions(time="at"))
    world.announce("a.csv", b"at,a\n,1\n1700000000,2\n", event_time="2026-11-21T12:00:00Z")
    world.announce("b.csv", b"at,a\n,1\n1700000000,2\n")
    await run_to_end(world, 2)
    found = [record.get("event_time") for record in world.records()]
    assert found == [1_795_262_400_000, 1_700_000_000_000, None, 1_700_000_000_000]


@virtual_time
async def test_a_record_that_grows_too_large_by_them_is_answered_by_an_error() -> None:
    world = World().with_settings(rows=RowOptions(keep=("text",)))
    world.sink = MemorySink(partitions=1, record_bytes=1000)
    world.announce("a.csv", b"text,a\n" + b"x" * 3000 + b",1\nshort,2\n")
    await run_to_end(world, 1)
    first, second = world.records()
    assert first["error"]["code"] == "result_too_large"
    assert second["columns"] == {"text": "short"}
