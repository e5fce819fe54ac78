"""Answers of then that are in result objects are compared as if they were on the topic."""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.adapters.stores.local_files import FolderObjects
from penstock.core.comparing.comparison import Agreement
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.rows.rejections import Rejection
from penstock.encodings import result_formats
from penstock.encodings.base import AnsweredRows
from penstock.errors import Fatal
from penstock.messages.command_json import Difference
from penstock.ports import Location
from penstock.tools.replay.diff import NOW, THEN, Pairing
from penstock.tools.replay.former_results import AT_A_TIME, ROWS, FormerResults
from tests.replay.test_diff import SPANS, planned, record

NOW_ANSWERS = [
    record(7, {"score": 1}, 0),
    record(7, {"score": 9}, 1),
    record(7, None, 2, error={"code": "model_rejected", "message": "other words"}),
]


def written(folder: Path, format: str) -> bytes:
    """A result of three rows, the last refused."""
    encoding = result_formats.find(format)()
    why = Rejection("model_rejected", "refused", "predict")
    encoding.add(AnsweredRows(0, [b'{"score":1}', b'{"score":2}', b"null"], None, {2: why}))
    data = encoding.close()
    (folder / "b").mkdir(exist_ok=True)
    (folder / "b" / f"x.{format}").write_bytes(data)
    return data


async def test_a_result_of_many_rows_is_read_in_parts(tmp_path: Path) -> None:
    many = 2 * ROWS + 1
    encoding = result_formats.find("jsonl")()
    encoding.add(AnsweredRows(0, [b"%d" % row for row in range(many)], None, {}))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.jsonl").write_bytes(data := encoding.close())
    now = [record(7, row, row) for row in range(many)]
    difference = await compared(tmp_path, [claim(7, data, "jsonl")], now)
    assert (difference.rows, difference.equal) == (many, many)


def claim(offset: int, data: bytes, format: str, **more: Any) -> bytes:
    """The record of the object at this offset."""
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    said = {"url": f"s3://b/x.{format}", "version": None, "bytes": len(data), "rows": 3}
    result = {**said, "errors": 1, "checksum": checksum}
    return record(offset, None, None, last=True, rows=3, result=result, **more)


async def compared(folder: Path, then: Sequence[bytes], now: Sequence[bytes]) -> Difference:
    pairing = Pairing(planned(), SPANS, Agreement())
    pairing.begin(frozenset([0]))
    objects = FolderObjects(str(folder))
    results = FormerResults(objects, StoreChoice.one(), pairing.wants_of_then)

    async def values() -> AsyncGenerator[list[bytes]]:
        yield [*then]

    async for some in results.in_place(values()):
        pairing.take(THEN, some)
    pairing.take(NOW, now)
    pairing.end()
    results.tell()
    return pairing.report()


async def test_results_are_fetched_side_by_side() -> None:
    memory = MemoryObjects()
    encoding = result_formats.find("jsonl")()
    encoding.add(AnsweredRows(0, [b"1"], None, {}))
    memory.put("b", "x.jsonl", data := encoding.close())

    at_most = 0
    reads = set[int]()

    async def far(_: Location) -> None:
        nonlocal at_most
        number = len(memory.opened)
        reads.add(number)
        at_most = max(at_most, len(reads))
        for _turn in range(10):
            await asyncio.sleep(0)
        reads.remove(number)

    async def values() -> AsyncGenerator[list[bytes]]:
        yield [claim(offset, data, "jsonl") for offset in range(4 * AT_A_TIME)]

    memory.on_open = far
    results = FormerResults(memory, StoreChoice.one(), lambda *_: True)
    given = [orjson.loads(one) async for some in results.in_place(values()) for one in some]
    assert at_most == AT_A_TIME
    assert [one["id"] for one in given if one["row"] == 0] == [
        f"refs/0/{offset}/0/0" for offset in range(4 * AT_A_TIME)
    ]


@pytest.mark.parametrize("format", ["jsonl", "jsonl.gz", "csv", "parquet"])
async def test_each_row_of_a_result_is_compared(tmp_path: Path, format: str) -> None:
    data = written(tmp_path, format)
    difference = await compared(tmp_path, [claim(7, data, format)], NOW_ANSWERS)
    assert (difference.rows, difference.agreed, difference.equal, difference.same_error) == (
        2,
        1,
        1,
        1,
    )
    assert (difference.only_then, difference.only_now) == (0, 0)
    (example,) = difference.examples
    assert (example.id, example.then, example.now) == ("refs/0/7/0/1", {"score": 2}, {"score": 9})


async def test_rows_and_markers_that_are_on_the_topic_are_compared_as_they_are(
    tmp_path: Path,
) -> None:
    data = written(tmp_path, "jsonl")
    error = {"error": {"code": "bad_format", "message": "it ends early"}}
    broken = record(8, None, None, **error)
    then = [record(6, 1), claim(7, data, "jsonl", **error), broken]
    now = [record(6, 1), *NOW_ANSWERS, record(7, None, None, **error), broken]
    difference = await compared(tmp_path, then, now)
    # Of an object that broke the rows count, and no end beside them.
    assert (difference.rows, difference.same_error, difference.only_then, difference.only_now) == (
        3,
        2,
        0,
        0,
    )


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_result_that_is_no_longer_that_of_the_record_is_told(
    tmp_path: Path, is_gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = written(tmp_path, "jsonl")
    file = tmp_path / "b" / "x.jsonl"
    if is_gone:
        file.unlink()
    else:
        file.write_bytes(data + b"\n")
    difference = await compared(tmp_path, [claim(7, data, "jsonl")], NOW_ANSWERS)
    assert (difference.rows, difference.only_now) == (0, 3)
    (line,) = caplog.messages
    assert line.startswith("1 former results cannot be compared")
    assert ("written again" in line) != is_gone


async def test_results_outside_the_range_are_not_read(tmp_path: Path) -> None:
    data = written(tmp_path, "jsonl")
    outside = claim(1_000, data, "jsonl")
    difference = await compared(tmp_path, [outside, claim(7, data, "jsonl")], NOW_ANSWERS)
    assert (difference.rows, difference.same_error, difference.only_then) == (2, 1, 0)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_comparison_that_ends_in_its_midst_leaves_no_file_open(*, fails: bool) -> None:
    """While results are fetched, or while the rows of the first one are read."""
    memory = MemoryObjects()
    encoding = result_formats.find("jsonl")()
    encoding.add(AnsweredRows(0, [b"1"], None, {}))
    memory.put("b", "x.jsonl", data := encoding.close())

    async def may_fail(_: Location) -> None:
        if fails and len(memory.opened) == AT_A_TIME // 2:
            raise Fatal("no store takes this key")

    async def values() -> AsyncGenerator[list[bytes]]:
        yield [claim(offset, data, "jsonl") for offset in range(AT_A_TIME)]

    memory.on_open = may_fail
    results = FormerResults(memory, StoreChoice.one(), lambda *_: True)
    before = open_files()
    async with aclosing(results.in_place(values())) as given:
        assert await anext(given) == []
        with pytest.raises(Fatal) if fails else nullcontext():
            await anext(given)
            assert open_files() - before
    # What earlier tests left to the collector may go meanwhile.
    assert open_files() <= before


def open_files() -> set[tuple[int, int]]:
    """Each with what it is, as another file may get its number."""
    found = set()
    for file in Path("/dev/fd").iterdir():
        with suppress(OSError):  # that of the list itself
            found.add((int(file.name), os.fstat(int(file.name)).st_ino))
    return found
