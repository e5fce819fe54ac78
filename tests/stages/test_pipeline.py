"""The promises of the whole, on memory adapters and virtual time."""

import asyncio
import gzip
import io
import tarfile
from collections.abc import Sequence

import orjson
import pytest

from consumers.adapters.memory import sums
from consumers.core.payload import Payload
from consumers.core.window import WindowLimits
from consumers.errors import Fatal, Rejected, Transient, Unreachable
from consumers.ports import Answers, Location
from consumers.testing.virtual_time import virtual_time
from tests.support.pipelines import SETTINGS, World, csv, run_to_end, running, until


def rows_and_sums(world: World, partition: int = 0) -> list[tuple[int, int, float]]:
    """(offset, row, predicted sum) of every record, in order."""
    return [
        (record["source"]["offset"], record["row"], record["prediction"]["sum"])
        for record in world.records(partition)
    ]


@virtual_time
async def test_one_object_is_answered_row_by_row_and_committed() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    first, second, third = world.records()
    assert first == {
        "v": 1,
        "id": "refs/0/0/0/0",
        "stream": "a.csv",
        "source": {"topic": "refs", "partition": 0, "offset": 0},
        "object": {"bucket": "b", "key": "a.csv", "version": '"1"'},
        "row": 0,
        "model": "rows",
        "prediction": {"sum": 0},
    }
    assert [second["row"], second.get("last")] == [1, None]
    assert [third["row"], third["last"], third["rows"]] == [2, True, 3]
    assert world.next_offset() == 1


@virtual_time
async def test_a_row_that_no_line_end_follows_is_answered_too() -> None:
    world = World()
    world.announce("a.csv", b"1,1\n2,2")
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, 0, 2.0), (0, 1, 4.0)]


@virtual_time
async def test_the_output_is_in_input_order_whatever_finishes_first() -> None:
    world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.010))
    for number in range(20):
        world.announce(f"{number}.csv", csv(1 + number * 7 % 11, start=100 * number))

    async def later_calls_answer_first(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.5 / (1 + len(world.model.calls)))
        return None

    world.model.script = later_calls_answer_first
    await run_to_end(world, 20)
    assert rows_and_sums(world) == [
        (number, row, 2.0 * (100 * number + row))
        for number in range(20)
        for row in range(1 + number * 7 % 11)
    ]


@virtual_time
async def test_nothing_is_committed_while_a_delivery_report_is_missing() -> None:
    world = World()
    world.sink.hold = True
    world.announce("a.csv", csv(3))
    world.announce("b.csv", csv(3))
    async with running(world):
        await until(lambda: len(world.records()) == 6)
        await asyncio.sleep(30.0)
        assert world.source.commits == []
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 2)


@virtual_time
async def test_a_dead_letter_without_a_report_holds_the_commit_too() -> None:
    world = World()
    world.announce("missing.csv")
    world.sink.hold = True
    async with running(world):
        await until(lambda: len(world.dead_letters()) == 1)
        await asyncio.sleep(30.0)
        assert world.source.commits == []
        world.sink.hold = False
        assert world.sink.deliver() == 2
        await until(lambda: world.next_offset() == 1)


@virtual_time
async def test_rows_of_several_partitions_and_streams_share_a_model_call() -> None:
    world = World(partitions=4)
    for number in range(8):
        world.announce(f"{number}.csv", csv(2), partition=number % 4)
    async with running(world):
        await until(lambda: all(world.next_offset(number) == 2 for number in range(4)))
    assert [sum(payload.rows for payload in call) for call in world.model.calls] == [16]


@virtual_time
async def test_a_lone_row_is_sent_within_the_wait() -> None:
    world = World().with_settings(window=WindowLimits(512, 1 << 20, 0.010))
    async with running(world):
        await asyncio.sleep(1.0)
        world.announce("a.csv", csv(1))
        began_s = world.clock.now()
        await until(lambda: len(world.model.calls) == 1)
        assert world.clock.now() - began_s <= 0.012


@virtual_time
async def test_never_more_calls_than_allowed_are_in_flight() -> None:
    world = World().with_settings(window=WindowLimits(4, 1 << 20, 0.0), callers=3)
    for number in range(10):
        world.announce(f"{number}.csv", csv(20))

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.1)
        return None

    world.model.script = slow
    await run_to_end(world, 10)
    assert world.model.most_in_flight == 3


@virtual_time
async def test_downloads_go_on_while_the_model_is_busy() -> None:
    world = World().with_settings(window=WindowLimits(4, 1 << 20, 0.0), callers=1)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(10):
        world.announce(f"{number}.csv", csv(4))
    async with running(world):
        await until(lambda: len(world.objects.opened) == 10)
        assert len(world.model.calls) == 1
        release.set()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_the_byte_budget_stops_the_transfer_and_nothing_locks_up() -> None:
    world = World(partitions=2).with_settings(
        buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0)
    )
    world.objects.chunk_bytes = 512
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(12):
        world.announce(f"{number}.csv", csv(400), partition=number % 2)
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        # Both heads may overdraw, one chunk at a time; the others stop.
        assert pipeline.wiring.budget.peak_bytes < 400 * 136 * 2 + 20_000 + 16 * 512 * 17
        release.set()
        await until(lambda: world.next_offset(0) == 6 and world.next_offset(1) == 6)
        assert pipeline.wiring.budget.spent_bytes == 0
    assert len(world.records(0)) == len(world.records(1)) == 6 * 400


@virtual_time
async def test_a_huge_object_behind_a_slow_broker_is_held_by_the_byte_budget_too() -> None:
    world = World().with_settings(buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0))
    world.objects.chunk_bytes = 512
    world.sink.hold = True
    world.announce("huge.csv", csv(5_000))
    async with running(world) as pipeline:
        await asyncio.sleep(60.0)
        # Above the limit: one chunk of about 60 rows of 136 bytes, and one that is not yet decided.
        assert pipeline.wiring.budget.peak_bytes < 20_000 + 2 * 100 * 136
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 1)
    assert len(world.records()) == 5_000


@virtual_time
async def test_no_more_objects_of_a_partition_are_begun_than_allowed() -> None:
    world = World().with_settings(in_flight_objects=3)
    world.sink.hold = True
    for number in range(10):
        world.announce(f"{number}.csv", csv(1))
    async with running(world):
        await asyncio.sleep(1.0)
        assert len(world.objects.opened) == 3
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_several_objects_in_one_message_are_answered_in_their_order() -> None:
    world = World()
    world.objects.put("b", "x.csv", csv(2, start=10))
    world.objects.put("b", "y.csv", csv(2, start=20))
    names = [{"bucket": "b", "key": key} for key in ("y.csv", "x.csv")]
    world.source.append(orjson.dumps({"objects": names}), key=b"cam")
    await run_to_end(world, 1)
    assert [(one["id"], one["prediction"]["sum"]) for one in world.records()] == [
        ("refs/0/0/0/0", 40),
        ("refs/0/0/0/1", 42),
        ("refs/0/0/1/0", 20),
        ("refs/0/0/1/1", 22),
    ]


@virtual_time
async def test_inline_rows_need_no_object() -> None:
    world = World()
    world.source.append(orjson.dumps({"stream": "s", "inline": [[1, 2], [3, 4]], "event_time": 7}))
    await run_to_end(world, 1)
    assert [(one["stream"], one["object"], one["event_time"]) for one in world.records()] == [
        ("s", None, 7)
    ] * 2
    assert rows_and_sums(world) == [(0, 0, 3.0), (0, 1, 7.0)]


@virtual_time
async def test_selected_rows_keep_their_numbers() -> None:
    world = World()
    world.announce("a.csv", csv(10), rows=[[2, 4], [8, 10]])
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, 2, 4.0), (0, 3, 6.0), (0, 8, 16.0), (0, 9, 18.0)]
    assert (world.records()[-1]["last"], world.records()[-1]["rows"]) == (True, 10)


@virtual_time
async def test_an_object_without_rows_is_answered_by_a_marker() -> None:
    world = World()
    world.announce("empty.csv", b"")
    world.announce("next.csv", csv(1))
    await run_to_end(world, 2)
    marker, _ = world.records()
    assert (marker["row"], marker["last"], marker["rows"], "error" in marker) == (
        None,
        True,
        0,
        False,
    )
    assert world.dead_letters() == []


@virtual_time
async def test_markers_can_be_turned_off() -> None:
    labels = type(SETTINGS.labels)("refs", "predictions", "rows", None, markers=False)
    world = World().with_settings(labels=labels)
    world.announce("empty.csv", b"")
    world.announce("missing.csv")
    await run_to_end(world, 2)
    assert world.records() == []
    assert [letter["code"] for letter in world.dead_letters()] == ["not_found"]


@pytest.mark.parametrize(
    ("key", "data", "code"),
    [
        ("missing.csv", None, "not_found"),
        ("broken.csv.gz", b"\x1f\x8b\x08\x00nonsense", "bad_format"),
        ("cut.tar", b"\x01" * 700, "bad_archive"),
    ],
)
def test_what_cannot_be_read_gets_its_marker_and_dead_letter_and_the_rest_goes_on(
    key: str, data: bytes | None, code: str
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()
        world.announce("before.csv", csv(2))
        world.announce(key, data)
        world.announce("after.csv", csv(2))
        await run_to_end(world, 3)
        _, _, marker, _, _ = world.records()
        assert (marker["row"], marker["last"], marker["error"]["code"]) == (None, True, code)
        (letter,) = world.dead_letters()
        assert (letter["code"], letter["reference"]["key"]) == (code, key)
        assert letter["source"] == {"topic": "refs", "partition": 0, "offset": 1}

    scenario()


@virtual_time
async def test_a_value_that_is_no_reference_gets_its_marker_and_its_bytes_back() -> None:
    world = World()
    world.source.append(b"hello", key=b"cam-1")
    world.announce("after.csv", csv(1))
    await run_to_end(world, 2)
    marker = world.records()[0]
    assert (marker["stream"], marker["object"], marker["error"]["code"]) == (
        "cam-1",
        None,
        "bad_reference",
    )
    (letter,) = world.dead_letters()
    assert (letter["reference"], letter["value_b64"]) == (None, "aGVsbG8=")


@virtual_time
async def test_a_bad_row_is_rejected_in_its_place_and_no_other() -> None:
    world = World()
    world.announce("a.csv", b"1,1\n2,oops\n3,3\n4,4\n")
    await run_to_end(world, 1)
    one, bad, three, four = world.records()
    assert (bad["row"], bad["prediction"], bad["error"]["code"]) == (1, None, "bad_row")
    assert [record["prediction"] for record in (one, three, four)] == [
        {"sum": 2},
        {"sum": 6},
        {"sum": 8},
    ]
    assert (four["last"], four["rows"]) == (True, 4)
    (letter,) = world.dead_letters()
    assert (letter["rows"], letter["reference"]["rows"]) == ([[1, 2]], [[1, 2]])


@virtual_time
async def test_neighbours_that_fail_for_one_reason_share_a_dead_letter() -> None:
    world = World()
    world.announce("a.csv", b"1,1\n2,oops\n3,oops\n4,oops\n5,5\n6,oops\n7\n8,8\n")
    await run_to_end(world, 1)
    rejected = [record["row"] for record in world.records() if "error" in record]
    assert rejected == [1, 2, 3, 5, 6]
    letters = world.dead_letters()
    assert [letter["rows"] for letter in letters] == [[[1, 4]], [[5, 6]], [[6, 7]]]
    assert [letter["reference"]["rows"] for letter in letters] == [[[1, 4]], [[5, 6]], [[6, 7]]]


@virtual_time
async def test_rows_of_two_files_of_an_archive_share_no_dead_letter() -> None:
    world = World()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in (("x.csv", b"1,1\n2,oops\n"), ("y.csv", b"3,oops\n4,4\n")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    world.announce("a.tar", packed.getvalue())
    await run_to_end(world, 1)
    letters = [(letter["member"], letter["rows"]) for letter in world.dead_letters()]
    assert letters == [("x.csv", [[1, 2]]), ("y.csv", [[2, 3]])]


@virtual_time
async def test_an_object_that_breaks_off_keeps_its_rows_and_tells_what_is_missing() -> None:
    world = World()
    world.objects.chunk_bytes = 4096
    data = gzip.compress(b"".join(b"%d,%d\n" % (n, n * n % 9973) for n in range(20_000)))
    world.announce("a.csv.gz", data[: len(data) // 2])
    world.announce("b.csv", csv(1))
    await run_to_end(world, 2)
    records = world.records()
    rows = [record["row"] for record in records[:-2]]
    assert rows == list(range(len(rows)))
    assert len(rows) > 1_000
    marker = records[-2]
    assert (marker["row"], marker["last"], marker["rows"]) == (None, True, len(rows))
    assert marker["error"]["code"] == "bad_format"
    (letter,) = world.dead_letters()
    assert letter["reference"]["rows"] == [[len(rows), None]]


@virtual_time
async def test_a_bucket_outside_the_allow_list_is_never_opened() -> None:
    world = World(allow=["b/good/*"])
    world.announce("bad/a.csv", csv(1))
    world.announce("good/a.csv", csv(1))
    await run_to_end(world, 2)
    assert [record.get("error", {}).get("code") for record in world.records()] == [
        "not_allowed",
        None,
    ]
    assert [location.key for location in world.objects.opened] == ["good/a.csv"]


@virtual_time
async def test_a_broken_transfer_starts_again_and_repeats_no_row() -> None:
    world = World()
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(200))
    world.objects.faults["b", "a.csv"].extend([Transient("cut"), Unreachable("away")])
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(200)]
    assert sum(payload.rows for call in world.model.calls for payload in call) == 200
    assert [location.etag for location in world.objects.opened] == [None, '"1"', '"1"']


@virtual_time
async def test_an_object_that_the_store_keeps_failing_ends_as_unavailable() -> None:
    world = World()
    world.announce("a.csv", csv(2))
    world.objects.faults["b", "a.csv"].extend(Transient("503") for _ in range(1000))
    await run_to_end(world, 1)
    assert world.records()[-1]["error"]["code"] == "unavailable"
    assert 100.0 < world.clock.now() < 200.0


def test_a_store_that_is_away_is_waited_for_however_long(caplog: pytest.LogCaptureFixture) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()
        for number in range(20):
            world.announce(f"{number}.csv", csv(2))

        async def away_for_an_hour(location: Location) -> None:
            if world.clock.now() < 3600.0:
                raise Unreachable("refused")

        world.objects.on_open = away_for_an_hour
        async with running(world):
            await until(lambda: world.next_offset() == 20, within_s=4000.0)
        assert len(rows_and_sums(world)) == 40
        assert world.dead_letters() == []

    scenario()
    told = [line for line in caplog.messages if "object store" in line]
    assert [line.split(" after")[0] for line in told] == [
        "the object store does not answer, waiting: refused",
        "the object store answers again",
    ]


@pytest.mark.parametrize("service", ["object store", "model server"])
def test_with_patience_a_service_that_stays_away_ends_the_process_with_3(service: str) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(patience_s=60.0)
        world.announce("a.csv", csv(2))

        async def away(_: object) -> None:
            raise Unreachable("refused")

        if service == "object store":
            world.objects.on_open = away
        else:
            world.model.script = away
        with pytest.raises(BaseExceptionGroup) as caught:
            async with running(world):
                await until(lambda: False, within_s=600.0)
        assert caught.group_contains(Fatal, match=f"the {service} did not answer for 60 s")
        assert 60.0 <= world.clock.now() < 70.0

    scenario()


@virtual_time
async def test_a_sick_server_is_waited_for_and_no_row_is_blamed() -> None:
    world = World()
    world.announce("a.csv", csv(3))

    async def sick_for_an_hour(payloads: Sequence[Payload]) -> Answers | None:
        if world.clock.now() < 3600.0:
            raise Transient("overloaded")
        return None

    world.model.script = sick_for_an_hour
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=4000.0)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(3)]
    assert world.dead_letters() == []
    assert len(world.model.calls) < 2_000


@virtual_time
async def test_the_row_that_the_model_refuses_is_found_and_rejected_alone() -> None:
    world = World().with_settings(window=WindowLimits(512, 1 << 20, 0.010))
    world.announce("a.csv", csv(256))
    world.announce("b.csv", csv(256, start=1000))

    async def refuses_137(payloads: Sequence[Payload]) -> Answers | None:
        if any(b'"sum":274}' in value for value in sums(payloads).values):
            raise Rejected("model_rejected", "Prediction failed")
        return None

    world.model.script = refuses_137
    await run_to_end(world, 2)
    rejected = [record for record in world.records() if "error" in record]
    assert [(one["source"]["offset"], one["row"]) for one in rejected] == [(0, 137)]
    assert len(world.records()) == 512
    assert len(world.model.calls) <= 1 + 2 * 9
    assert [letter["rows"] for letter in world.dead_letters()] == [[[137, 138]]]


@virtual_time
async def test_rows_that_the_model_rejects_one_by_one_need_no_further_call() -> None:
    world = World()
    world.announce("a.csv", csv(4))

    async def refuses_the_last(payloads: Sequence[Payload]) -> Answers | None:
        values = list(sums(payloads).values)
        return Answers([*values[:-1], b"null"], {len(values) - 1: "too dark"})

    world.model.script = refuses_the_last
    await run_to_end(world, 1)
    last = world.records()[-1]
    assert last["error"] == {"code": "model_rejected", "message": "too dark"}
    assert (last["prediction"], last["last"], last["rows"]) == (None, True, 4)
    assert len(world.model.calls) == 1


@virtual_time
async def test_a_result_that_the_topic_does_not_take_is_rejected_and_the_rest_delivered() -> None:
    world = World()
    world.sink = type(world.sink)(partitions=1, record_bytes=2_000)
    world.announce("a.csv", csv(3))

    async def one_long_answer(payloads: Sequence[Payload]) -> Answers | None:
        first, _, third = sums(payloads).values
        return Answers([first, b'"%b"' % (b"x" * 5_000), third], {})

    world.model.script = one_long_answer
    await run_to_end(world, 1)
    assert [record.get("error", {}).get("code") for record in world.records()] == [
        None,
        "result_too_large",
        None,
    ]


@virtual_time
async def test_a_fatal_answer_ends_the_worker() -> None:
    world = World()
    world.announce("a.csv", csv(1))

    async def no_such_model(payloads: Sequence[Payload]) -> Answers | None:
        raise Fatal("no model of that name")

    world.model.script = no_such_model
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(world):
            await until(lambda: False)
    assert caught.group_contains(Fatal, match="no model of that name")
    assert world.source.commits == []


@virtual_time
async def test_stop_drains_what_was_begun_and_commits_it() -> None:
    world = World().with_settings(commit_interval_s=1000.0)

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(2.0)
        return None

    world.model.script = slow
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: world.model.in_flight == 1)
    assert len(world.records()) == 3
    assert world.next_offset() == 1


@virtual_time
async def test_stop_gives_up_after_its_budget_and_commits_only_what_is_delivered() -> None:
    world = World(partitions=2).with_settings(drain_s=5.0)

    async def stuck_with_many(payloads: Sequence[Payload]) -> Answers | None:
        if sum(payload.rows for payload in payloads) > 3:
            await asyncio.sleep(1e6)
        return None

    world.model.script = stuck_with_many
    world.announce("a.csv", csv(3), partition=0)
    async with running(world):
        await until(lambda: world.next_offset(0) == 1)
        world.announce("b.csv", csv(30), partition=1)
        await until(lambda: world.model.in_flight == 1)
        stopped_s = world.clock.now()
    assert 5.0 <= world.clock.now() - stopped_s < 6.0
    assert (world.next_offset(0), world.next_offset(1)) == (1, 0)


@virtual_time
async def test_after_a_revoke_nothing_of_the_partition_is_published_or_committed() -> None:
    world = World(partitions=2).with_settings(drain_s=1.0)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("a.csv", csv(3), partition=0)
    world.announce("b.csv", csv(3), partition=1)
    async with running(world) as pipeline:
        await until(lambda: world.model.in_flight == 1)
        await world.source.revoke([0])
        release.set()
        await until(lambda: world.next_offset(1) == 1)
        assert world.records(0) == []
        assert world.next_offset(0) == 0
        assert pipeline.wiring.budget.spent_bytes == 0
        await world.source.assign([0])
        await until(lambda: world.next_offset(0) == 1)
    assert len(world.records(0)) == 3


@virtual_time
async def test_a_drain_waits_for_the_reports_of_what_is_sent_and_commits_it() -> None:
    world = World()
    world.sink.hold = True
    world.announce("a.csv", csv(3))
    async with running(world):
        await until(lambda: len(world.records()) == 3)
        asyncio.get_running_loop().call_later(1.0, world.sink.deliver)
        await world.source.revoke([0])
        assert world.next_offset() == 1
        world.sink.hold = False


@virtual_time
async def test_a_rebalance_in_the_drain_of_a_stop_waits_for_it_and_begins_nothing_new() -> None:
    world = World().with_settings(drain_s=5.0)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("a.csv", csv(3))
    async with running(world) as pipeline:
        await until(lambda: world.model.in_flight == 1)
        pipeline.stop()
        await asyncio.sleep(1.0)
        asyncio.get_running_loop().call_later(1.0, release.set)
        await world.source.revoke([0])
        assert world.next_offset() == 1
        await world.source.assign([0])
        assert pipeline.wiring.lanes == {}


@virtual_time
async def test_a_partition_that_comes_back_starts_where_it_was_committed() -> None:
    world = World()
    world.announce("a.csv", csv(1))
    world.announce("b.csv", csv(1))
    async with running(world):
        await until(lambda: world.next_offset() == 2)
        await world.source.revoke([0])
        world.announce("c.csv", csv(1))
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 3)
    assert [record["object"]["key"] for record in world.records()] == ["a.csv", "b.csv", "c.csv"]


@virtual_time
async def test_gaps_between_offsets_do_not_stop_the_commits() -> None:
    world = World()
    world.announce("a.csv", csv(1))
    world.source.append(orjson.dumps({"bucket": "b", "key": "a.csv"}), offset=17)
    await run_to_end(world, 18)
    assert len(world.records()) == 2


@virtual_time
async def test_an_event_that_announces_nothing_is_answered_by_nothing() -> None:
    world = World()
    world.source.append(b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}')
    world.announce("a.csv", csv(1))
    await run_to_end(world, 2)
    assert len(world.records()) == 1
    assert world.dead_letters() == []


@virtual_time
async def test_a_retry_asks_for_the_version_that_the_first_try_read() -> None:
    world = World()
    world.objects.versioned = True
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(200))
    world.objects.faults["b", "a.csv"].append(Transient("cut"))
    await run_to_end(world, 1)
    assert [location.version_id for location in world.objects.opened] == [None, "v1"]
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(200)]


@virtual_time
async def test_a_transfer_that_goes_on_is_not_given_up_however_often_it_breaks() -> None:
    world = World()
    world.objects.chunk_bytes = 100
    world.announce("a.csv", csv(500))

    async def slow_and_further_each_time(location: Location) -> None:
        world.objects.faulty_after_chunks += 3
        await asyncio.sleep(60.0)

    world.objects.on_open = slow_and_further_each_time
    world.objects.faults["b", "a.csv"].extend(Transient("cut") for _ in range(8))
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, row, 2.0 * row) for row in range(500)]


@virtual_time
async def test_a_large_value_that_is_no_reference_does_not_end_the_worker() -> None:
    world = World()
    world.sink = type(world.sink)(partitions=1, record_bytes=10_000)
    world.source.append(b"x" * 9_000)
    world.announce("after.csv", csv(1))
    await run_to_end(world, 2)
    (letter,) = world.dead_letters()
    assert (letter["code"], letter["value_b64"]) == ("bad_reference", None)


@virtual_time
async def test_a_huge_object_keeps_no_small_one_from_being_answered() -> None:
    world = World(partitions=2).with_settings(buffer_bytes=1 << 26)
    world.announce("huge.csv", csv(100_000), partition=0)

    async def slow(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.010)
        return None

    world.model.script = slow
    async with running(world):
        await until(lambda: len(world.model.calls) > 100)
        began_s = world.clock.now()
        for number in range(50):
            world.announce(f"{number}.csv", csv(8), partition=1)
        await until(lambda: len(world.records(1)) == 400)
        assert world.clock.now() - began_s < 0.3
        await until(lambda: world.next_offset(0) == 1)


@virtual_time
async def test_no_more_rows_of_an_object_are_read_ahead_than_are_soon_needed() -> None:
    world = World().with_settings(buffer_bytes=1 << 30)
    world.objects.chunk_bytes = 4096
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("huge.csv", csv(100_000))
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        assert pipeline.wiring.budget.spent_bytes < 10_000 * 136
        release.set()
        await until(lambda: world.next_offset() == 1)


@virtual_time
async def test_a_huge_object_lets_live_small_ones_pass_and_gets_its_share() -> None:
    world = World(partitions=2)
    world.objects.chunk_bytes = 4096

    async def takes_5_ms(_: Sequence[Payload]) -> None:
        await asyncio.sleep(0.005)

    world.model.script = takes_5_ms
    async with running(world):
        for number in range(100):
            world.announce(f"{number}.csv", csv(8), timestamp_ms=world.clock.wall_ms())
            if number == 10:
                world.announce("huge.csv", csv(60_000), partition=1)
            await asyncio.sleep(0.05)
        # Batches of 64 rows, one in 20 ms: 5 ms of call and a rest of 15; alone it would be done.
        assert 8_192 + 10_000 < len(world.records(1)) < 8_192 + 20_000
        await until(lambda: world.next_offset(1) == 1, within_s=5.0)
    assert len(world.records(0)) == 800
