"""Topics with a promise broken on purpose, and where the judge should say so."""

from penstock.core.progress.cursor import PartitionProgress, encode
from penstock.core.rows.origin import Cursor, Ranges, digest
from penstock.tools.verify.findings import BrokenPromise
from tests.verify.topics import Topics


def sound() -> Topics:
    """Three objects of five rows."""
    topics = Topics()
    for _ in range(3):
        topics.answer(topics.ask(), range(5), 5)
    return topics


def cursor(object_index: int, row: int, at: int = 0) -> str:
    """Of a commit at offset `at`."""
    objects = {at: Ranges([(0, object_index)])} if object_index else {}
    rows = {(at, object_index): Cursor(row, digest("b/a", "1"))} if row else {}
    return encode(PartitionProgress(at, objects=objects, rows=rows))


def only(topics: Topics) -> BrokenPromise:
    report = topics.report()
    assert not report.ok
    (found,) = report.violations
    return found


def kinds(topics: Topics) -> dict[str, int]:
    return topics.report().violated


def at_input(offset: int) -> tuple[str, int, int]:
    return ("refs", 0, offset)


def at_output(offset: int) -> tuple[str, int, int]:
    return ("predictions", 0, offset)


def at_letters(offset: int) -> tuple[str, int, int]:
    return ("predictions.dlq", 0, offset)


def place(found: BrokenPromise) -> tuple[str, int, int]:
    return (found.topic, found.partition, found.offset)
