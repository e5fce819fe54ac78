"""Records and letters that a topic takes, whatever the message."""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Sequence

import orjson
import pytest

from penstock.adapters.memory import MemorySink
from penstock.core.progress.line_stop import NO_LIMITS
from penstock.core.rows.payload import Payload
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import decode_prediction
from penstock.ops.topic_checks import LEAST_RECORD_BYTES
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.formats.support import tar_of
from tests.support.pipelines import DEAD_LETTERS, World, csv, run_to_end, running, until

LONG = "\x01" * 4_096
"""A name that takes 24 kB as JSON."""


def strict(record_bytes: int) -> World:
    world = World()
    world.sink = MemorySink(partitions=1, record_bytes=record_bytes)
    return world


def letters_bytes(world: World) -> int:
    return sum(
        len(value) for topic in world.sink.topics[DEAD_LETTERS].values() for _, value in topic
    )


@pytest.mark.parametrize("record_bytes", [LEAST_RECORD_BYTES, 100_000, 200_000, 1_000_000])
@virtual_time
async def test_the_longest_message_is_answered_on_the_smallest_topic(record_bytes: int) -> None:
    world = strict(record_bytes)
    world.objects.put("b", LONG, b"1,2\n3\n5,6\n7,8")
    ranges = [[10**18 + 2 * number, 10**18 + 2 * number + 1] for number in range(4_000)]
    attributes = {"a": "x" * 60_000}
    world.announce(LONG, stream=LONG, attributes=attributes)
    world.announce("gone.csv", stream=LONG, attributes=attributes, rows=ranges)
    world.source.append(orjson.dumps({"attributes": attributes, "inline": [[1, 2], ["no"]]}))
    world.announce("after.csv", csv(1))
    await run_to_end(world, 4)
    said = [decode_prediction(value) for _, value in world.sink.topics["predictions"][0]]
    assert [(one.source.offset, one.row) for one in said] == [
        *((0, row) for row in range(4)), (1, None), (2, 0), (2, 1), (3, 0)
    ]  # fmt: skip
    for _, value in world.sink.topics[DEAD_LETTERS][0]:
        decode_dead_letter(value)


@virtual_time
async def test_a_key_of_16_kb_and_a_member_of_24_kb_are_answered_on_the_smallest_topic() -> None:
    world = strict(LEAST_RECORD_BYTES)
    member = LONG[:-4] + ".csv"
    world.announce("a.tar", tar_of({member: b"1,2\nno\n5,6\n"}), stream="\U0001f600" * 4_096)
    world.announce("after.csv", csv(1))
    await run_to_end(world, 2)
    assert [(record["source"]["offset"], record["row"]) for record in world.records()] == [
        (0, 0), (0, 1), (0, 2), (1, 0)
    ]  # fmt: skip


@virtual_time
async def test_a_letter_too_large_for_its_reference_says_which_object_and_rows() -> None:
    world = strict(50_000)
    world.announce("a.csv", b"1,2\nno\n", attributes={"a": "x" * 60_000})
    await run_to_end(world, 1)
    letter = world.dead_letters()[-1]
    assert letter["object"]["key"] == "a.csv"
    assert (letter["reference"], letter["value_b64"], letter["code"]) == (None, None, "bad_row")
    assert letter["rows"] == [[1, 2]]
    assert [record["error"]["code"] for record in world.records()] == [
        "result_too_large",
        "bad_row",
    ]


@virtual_time
async def test_letters_of_many_rows_keep_their_reference_on_a_topic_of_small_records() -> None:
    world = strict(8_000).with_settings(line=NO_LIMITS)
    world.announce("a.csv", b"1,2\nno,2\n" * 500)
    await run_to_end(world, 1)
    letters = world.dead_letters()
    rows = [
        row for letter in letters for first, stop in letter["rows"] for row in range(first, stop)
    ]
    assert rows == list(range(1, 1000, 2))
    assert all(letter["reference"]["rows"] == letter["rows"] for letter in letters)


@virtual_time
async def test_a_message_is_kept_in_the_first_letter_about_it_and_no_other() -> None:
    world = World()
    value = b'{"inline":[%b]}' % b",".join(b'[1,2],["x%d"]' % number for number in range(500))
    world.source.append(value)
    world.announce("a.csv", csv(1))
    world.source.append(value)
    await run_to_end(world, 3)
    letters = world.dead_letters()
    kept = [letter["source"]["offset"] for letter in letters if letter["value_b64"]]
    assert kept == [0, 2]
    assert 2 < len(letters) < 50
    assert b64decode(letters[0]["value_b64"]) == value
    assert letters_bytes(world) < len(letters) * 9_000 + 2 * 2 * len(value)


@virtual_time
async def test_a_model_s_reasons_for_inline_rows_do_not_repeat_the_message_either() -> None:
    world = World()

    async def refuses(payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        return Answers([b"null"] * rows, {row: f"no {row}" for row in range(rows)})

    world.model.script = refuses
    world.source.append(b'{"inline":[%b]}' % b",".join([b"[1,2]"] * 300))
    await run_to_end(world, 1)
    assert sum(bool(letter["value_b64"]) for letter in world.dead_letters()) == 1


@virtual_time
async def test_the_log_tells_the_first_rejection_of_each_kind_with_its_place_and_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.announce("gone\n.csv", stream="cam")
    world.announce("a.tar", tar_of({"m.csv": b"1,2\nno,2\n5,6\n"}), stream="cam")
    world.announce("also-gone.csv", stream="cam")
    await run_to_end(world, 3)
    first, second, more = (line for line in caplog.messages if line.startswith("rejected"))
    assert first.startswith(
        r"rejected: stream 'cam' at refs/0, offset 0, object 0 ('b/gone\n.csv'): not_found: "
    )
    where = "rejected: stream 'cam' at refs/0, offset 1, object 0 (b/a.tar), member m.csv, row 1"
    assert second.startswith(f"{where}: bad_row: ")
    assert second.endswith(world.dead_letters()[1]["message"])
    assert more == "rejected within a minute: 1 more of stream 'cam' by not_found"


class Noted(logging.Handler):
    """When a rejection was told, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.times_s: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("rejected"):
            self.times_s.append(asyncio.get_running_loop().time())


@pytest.mark.parametrize("streams", [1, 10, 1_000])
@virtual_time
async def test_however_many_rows_are_bad_a_minute_has_at_most_60_lines(streams: int) -> None:
    noted, stage = Noted(), logging.getLogger("penstock.stages.reject")
    stage.addHandler(noted)
    world = World().with_settings(line=NO_LIMITS)
    async with running(world):
        for number in range(700):
            world.announce(f"{number}.csv", b"1,2\nno,2\n" * 3, stream=f"s{number % streams}")
            await asyncio.sleep(0.2)
        await until(lambda: world.next_offset() == 700)
    stage.removeHandler(noted)
    assert len(world.dead_letters()) == 700
    times_s = noted.times_s
    for began_s in times_s:
        assert sum(began_s <= time_s < began_s + 60.0 for time_s in times_s) <= 60
    assert len(times_s) >= min(streams, 19) * 3
