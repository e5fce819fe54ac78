"""What a record says of its result is looked up, and judged."""

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.adapters.stores.local_files import FolderObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.core.rows.rejections import Rejection
from penstock.encodings import result_formats
from penstock.encodings.base import AnsweredRows
from penstock.messages.prediction import Result
from penstock.tools.verify.findings import VerifyReport
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.read_topics import by_url, judge_results
from penstock.tools.verify.result_objects import look
from tests.verify.topics import Topics, feed

ROWS = 5


class Written:
    """A topic with one object of five rows, the third refused, and its result in a folder."""

    def __init__(self, folder: Path, format: str = "jsonl", *, of_rows: bool = False) -> None:
        self.topics = Topics()
        self.folder = folder
        self.of_rows = of_rows
        self.name = f"a.{format}"
        offset = self.topics.ask()
        data = encoded(format)
        (folder / "b").mkdir(exist_ok=True)
        (folder / "b" / self.name).write_bytes(data)
        if of_rows:
            self.topics.answer(offset, range(ROWS), ROWS, rejected=[2])
        self.said: dict[str, Any] = {
            "url": f"s3://b/{self.name}",
            "version": None,
            "bytes": len(data),
            "rows": ROWS,
            "errors": 1,
            "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }
        self.topics.letter(offset, [(2, 3)])

    def claim(self, offset: int = 0, name: str = "a", **changes: Any) -> None:
        result = Result(**(self.said | changes))
        self.topics.put(self.topics.frame(offset, name).result(ROWS, result, None))

    async def report(self) -> VerifyReport:
        topics = self.topics
        judge = Judge(replace(topics.scope(), of_rows=self.of_rows, of_objects=True))
        feed(judge.reference, topics.refs)
        feed(judge.answer, topics.predictions)
        feed(judge.dead_letter, topics.letters)
        feed(judge.compare, {number: topics.predictions[number] for number in judge.repeated})
        objects = FolderObjects(str(self.folder))
        for url, claimed in by_url(judge.claims).items():
            judge_results(claimed, await look(objects, StoreChoice.one(), url))
        return judge.report()


def encoded(format: str) -> bytes:
    encoding = result_formats.find(format)()
    why = Rejection("model_rejected", "refused", "predict")
    encoding.add(AnsweredRows(0, [b"1", b"2", b"null", b"4", b"5"], None, {2: why}))
    return encoding.close()


@pytest.mark.parametrize("format", ["jsonl", "jsonl.gz", "csv", "parquet"])
@pytest.mark.parametrize("of_rows", [False, True])
async def test_a_result_that_is_as_its_record_says(
    tmp_path: Path, format: str, *, of_rows: bool
) -> None:
    written = Written(tmp_path, format, of_rows=of_rows)
    written.claim()
    report = await written.report()
    assert report.violated == {}
    assert (report.rows, report.rejected, report.results) == (ROWS, 1, 1)


@pytest.mark.parametrize("of_rows", [False, True])
async def test_the_same_again_is_a_repeat(tmp_path: Path, *, of_rows: bool) -> None:
    written = Written(tmp_path, of_rows=of_rows)
    written.claim()
    written.claim()
    assert (await written.report()).violated == {}


@pytest.mark.parametrize(
    "change",
    [{"bytes": 1}, {"rows": 6}, {"errors": 0}, {"checksum": "sha256:0"}],
    ids=["bytes", "rows", "errors", "checksum"],
)
async def test_a_result_that_is_not_as_its_record_says(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    written = Written(tmp_path)
    written.claim(**change)
    assert (await written.report()).violated["bad_result"] == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("spoil", [cut, gone])
async def test_a_result_that_is_gone_or_cut(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    written = Written(tmp_path)
    written.claim()
    spoil(tmp_path / "b" / written.name)
    assert (await written.report()).violated["bad_result"] == 1


@pytest.mark.parametrize("url", ["gs://elsewhere/a.jsonl", "a.jsonl"])
async def test_a_result_in_no_configured_store(tmp_path: Path, url: str) -> None:
    written = Written(tmp_path)
    written.claim(url=url)
    report = await written.report()
    assert report.violated["bad_result"] == 1
    assert "cannot be read: " in report.violations[0].text


@pytest.mark.parametrize("of_rows", [False, True])
async def test_a_result_that_a_later_one_has_replaced(tmp_path: Path, *, of_rows: bool) -> None:
    """As after `dlq redrive --whole-objects`."""
    written = Written(tmp_path, of_rows=of_rows)
    written.claim()
    path = tmp_path / "b" / written.name
    before = path.read_bytes()
    again = written.topics.ask()
    if of_rows:
        written.topics.answer(again, range(ROWS), ROWS)
    data = b"".join(b'{"row":%d,"prediction":%d}\n' % (row, row) for row in range(ROWS))
    path.write_bytes(data)
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    written.claim(again, bytes=len(data), errors=0, checksum=checksum)
    report = await written.report()
    assert report.violated == {}
    assert (report.results, report.replaced) == (1, 1)
    path.write_bytes(before)
    assert (await written.report()).violated["bad_result"] == 1, "an earlier one replaces none"


async def test_a_result_that_the_result_of_another_object_has_replaced(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.claim()
    data = encoded("jsonl").replace(b"5}", b"6}")
    (tmp_path / "b" / written.name).write_bytes(data)
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    again = written.topics.ask("c")
    written.topics.letter(again, [(2, 3)], "c")
    written.claim(again, "c", bytes=len(data), checksum=checksum)
    report = await written.report()
    assert report.violated == {"bad_result": 1}


async def test_a_row_that_is_not_in_the_result(tmp_path: Path) -> None:
    written = Written(tmp_path, "jsonl.gz")
    path = tmp_path / "b" / written.name
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    data = gzip.compress(b"".join(lines[:3] + lines[4:]))
    path.write_bytes(data)
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    written.claim(bytes=len(data), rows=4, checksum=checksum)
    report = await written.report()
    assert report.violated == {"bad_result": 1}
    assert "lacks row 3" in report.violations[0].text


async def test_an_object_without_a_result(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.topics.letters[0].clear()
    written.topics.mark(0)
    assert (await written.report()).violated == {"bad_result": 1}
