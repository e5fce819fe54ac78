"""What fails is answered in its place, has its dead letter, and takes nothing else along."""

import gzip
import io
import tarfile
from collections.abc import Sequence

import orjson
import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Rejected
from penstock.ports import Answers
from penstock.tools.simulation.region_workers import sums
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end


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
        if data is not None:
            assert marker["error"]["message"].startswith(f"b/{key}: ")
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
async def test_rows_that_fail_for_one_reason_share_a_dead_letter() -> None:
    world = World()
    world.announce("a.csv", b"1,1\n2,oops\n3,oops\n4,oops\n5,5\n6,oops\n7\n8,8\n")
    await run_to_end(world, 1)
    rejected = [record["row"] for record in world.records() if "error" in record]
    assert rejected == [1, 2, 3, 5, 6]
    letters = world.dead_letters()
    assert [letter["rows"] for letter in letters] == [[[1, 4], [5, 6]], [[6, 7]]]
    assert [letter["reference"]["rows"] for letter in letters] == [[[1, 4], [5, 6]], [[6, 7]]]


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
async def test_a_dead_letter_names_a_bounded_number_of_ranges() -> None:
    world = World()
    world.announce("a.csv", b"1\n" + b"x\n2\n" * 600)
    await run_to_end(world, 1)
    letters = world.dead_letters()
    assert [row for letter in letters for row, _ in letter["rows"]] == list(range(1, 1201, 2))
    assert max(len(letter["rows"]) for letter in letters) <= 256
    assert len(letters) < 20


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
async def test_an_object_whose_stream_has_too_long_a_name_is_refused_alone() -> None:
    world = World().with_settings(stream_bytes=16)
    e = "\N{LATIN SMALL LETTER E WITH ACUTE}"
    streams = ["x" * 17, "x" * 16, e * 9, e * 8]
    world.objects.put("b", "a.csv", csv(1))
    named = [{"bucket": "b", "key": "a.csv", "stream": stream} for stream in streams]
    world.source.append(orjson.dumps({"objects": named}))
    world.source.append(orjson.dumps({"inline": [[1]], "stream": "x" * 17}))
    await run_to_end(world, 2)
    records = world.records()
    assert [record["stream"] for record in records] == [*streams, "x" * 17]
    codes = [record.get("error", {}).get("code") for record in records]
    assert codes == ["bad_reference", None, "bad_reference", None, "bad_reference"]
    assert "limits.stream_bytes" in records[0]["error"]["message"]
    letter = world.dead_letters()[0]
    assert letter["reference"]["key"] == "a.csv"


@virtual_time
async def test_a_key_that_climbs_out_of_an_allowed_prefix_is_never_opened() -> None:
    """S3 takes it literally; what stands before S3 may not."""
    world = World(allow=["b/good/*"])
    keys = ["good/../bad/1.csv", "good/./1.csv", "good/..", "good/a..b.csv", "good/..a/1.csv"]
    for key in keys:
        world.announce(key, csv(1))
    await run_to_end(world, len(keys))
    codes = [record.get("error", {}).get("code") for record in world.records()]
    assert codes == ["not_allowed"] * 3 + [None] * 2
    assert [location.key for location in world.objects.opened] == keys[3:]


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
    assert world.published() == 512
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
async def test_a_large_value_that_is_no_reference_does_not_end_the_worker() -> None:
    world = World()
    world.sink = type(world.sink)(partitions=1, record_bytes=10_000)
    world.source.append(b"x" * 9_000)
    world.announce("after.csv", csv(1))
    await run_to_end(world, 2)
    (letter,) = world.dead_letters()
    assert (letter["code"], letter["value_b64"]) == ("bad_reference", None)
