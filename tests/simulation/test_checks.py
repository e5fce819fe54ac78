"""The checks notice what they are there for; a world without faults would pass with none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pytest

from penstock.core.rows.origin import digest
from penstock.formats.runs import RowOptions
from penstock.ports import Commit, Record
from penstock.tools.simulation.checks.arrivals import ArrivedAnswers
from penstock.tools.simulation.checks.history import History, Violation
from penstock.tools.simulation.checks.life import Life, LifeTerms
from penstock.tools.simulation.checks.truth import Letter, PartitionLog, Truths
from penstock.tools.simulation.unreliable_services import echo
from penstock.tools.simulation.virtual_time import run
from tests.support.partitions import P0

Answer = dict[str, Any]
ROWS = 3
START = Commit(0)
DIGESTS = {version: digest("b/0.csv", version) for version in "vw"}


class Watched:
    """Two objects of three rows, at offsets 0 and 5; the second row of the second is refused."""

    def __init__(self, start: Commit = START, *, by_stream: bool = False) -> None:
        truths = Truths(RowOptions(), echo, 1 << 20)
        truths.put("b/0.csv", "v", b"0,0\n1,0\n2,0\n")
        truths.put("b/5.csv", "v", b"0,0\n1,1\n2,0\n")
        records = [
            Record(
                P0,
                offset,
                None,
                orjson.dumps({"bucket": "b", "key": f"{offset}.csv", "stream": f"s{offset}"}),
                0,
            )
            for offset in (0, 5)
        ]
        self.log = PartitionLog(records)
        self.truths = truths
        for version in "vw":
            self.log.bind((0, 0), DIGESTS[version], version, truths)
        self.life = Life(self.log, "w", P0, start, LifeTerms(truths, by_stream), History(0))

    def deliver(self, *answers: Answer) -> None:
        self.life.acknowledged(self.life.published(answers))


def answer(offset: int, row: int, **changes: Any) -> Answer:
    made: Answer = {
        "id": f"refs/0/{offset}/0/{row}",
        "stream": f"s{offset}",
        "source": {"topic": "refs", "partition": 0, "offset": offset},
        "object": {"bucket": "b", "key": f"{offset}.csv", "version": "v"},
        "row": row,
        "model": "rows",
        "prediction": {"n": row},
    }
    if row == ROWS - 1:
        made |= {"last": True, "rows": ROWS}
    if (offset, row) == (5, 1):
        made |= {"prediction": None, "error": {"code": "model_rejected", "message": "no"}}
    return made | changes


FIRST = [answer(0, row) for row in range(ROWS)]
SECOND = [answer(5, row) for row in range(ROWS)]
LETTER = Letter(5, "5.csv", 1, "model_rejected", "rows")


def at_row(row: int, version: str) -> Commit:
    """In the middle of the first object."""
    return Commit(0, f"p1:0;0.{row}.{DIGESTS[version]}")


def noticed(break_it: Callable[[], None], promise: str) -> None:
    async def scenario() -> None:
        with pytest.raises(Violation, match=promise):
            break_it()

    run(scenario())


def test_what_is_right_passes() -> None:
    watched = Watched()
    watched.deliver(*FIRST)
    watched.life.committed(Commit(1))
    watched.deliver(*SECOND)
    watched.log.letters.add(LETTER)
    watched.life.committed(Commit(6))


@pytest.mark.parametrize(
    ("answers", "promise"),
    [
        ([FIRST[1]], "expected is row 0"),
        ([FIRST[0], FIRST[0]], "expected is row 1"),
        ([FIRST[0], FIRST[2]], "expected is row 1"),
        ([*FIRST[:2], SECOND[0]], "the turn is offset 0"),
        ([*FIRST, *FIRST], "the turn is offset 5"),
        ([*FIRST, *SECOND, FIRST[0]], "nothing more was asked for"),
        ([answer(0, 0, prediction={"n": 7})], "true is"),
        ([answer(0, 0, error={"code": "bad_row", "message": ""})], "true is"),
        ([*FIRST[:2], answer(0, 2, last=False)], "does not say so"),
        ([*FIRST[:2], answer(0, 2, rows=4)], "last of 4 rows"),
        ([answer(0, 0, last=True, rows=3)], "last of 3 rows"),
        (
            [FIRST[0], answer(0, 1, object={"key": "0.csv", "version": "w"})],
            "the rows before were not",
        ),
        ([FIRST[0] | {"row": None, "last": True, "rows": 0}], "is a marker"),
    ],
)
def test_a_wrong_answer_is_noticed(answers: Sequence[Answer], promise: str) -> None:
    noticed(lambda: Watched().deliver(*answers), promise)


def test_a_commit_before_the_delivery_is_acknowledged_is_noticed() -> None:
    watched = Watched()
    watched.life.published(FIRST)
    noticed(lambda: watched.life.committed(Commit(1)), "not acknowledged is offset 0")


def test_a_commit_of_more_than_was_delivered_is_noticed() -> None:
    watched = Watched()
    watched.deliver(*FIRST)
    noticed(lambda: watched.life.committed(Commit(6)), "not acknowledged is offset 5")


def test_a_cursor_that_is_one_row_ahead_is_noticed() -> None:
    watched = Watched()
    watched.deliver(*FIRST[:2])
    watched.life.committed(at_row(2, "v"))
    noticed(lambda: watched.life.committed(at_row(3, "v")), "only 2 rows are acknowledged")


def test_a_cursor_of_another_version_is_noticed() -> None:
    watched = Watched()
    watched.deliver(*FIRST[:2])
    noticed(lambda: watched.life.committed(at_row(2, "w")), "not bound to the version v")


def test_a_commit_after_the_partition_was_handed_back_is_noticed() -> None:
    watched = Watched()
    watched.deliver(*FIRST)
    watched.life.over = True
    noticed(lambda: watched.life.committing(Commit(1)), "after the partition was handed back")


def test_a_commit_without_its_dead_letter_is_noticed() -> None:
    watched = Watched()
    watched.deliver(*FIRST, *SECOND)
    noticed(lambda: watched.life.committed(Commit(6)), "without the dead letter")


def test_a_life_begins_at_the_row_its_cursor_says() -> None:
    start = at_row(1, "v")
    Watched(start).deliver(*FIRST[1:])
    noticed(lambda: Watched(start).deliver(*FIRST), "expected is row 1")
    noticed(lambda: Watched(start).deliver(FIRST[2]), "expected is row 1")


def test_a_life_whose_cursor_is_of_another_version_begins_at_the_first_row() -> None:
    start = at_row(1, "w")
    Watched(start).deliver(*FIRST)
    noticed(lambda: Watched(start).deliver(*FIRST[1:]), "expected is row 0")


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        ([*FIRST, *SECOND], []),
        (FIRST, ["refs/0/5/0"]),
        ([*FIRST, *SECOND[:2]], ["refs/0/5/0"]),
        ([FIRST[0], FIRST[2], *SECOND], ["refs/0/0/0"]),
    ],
)
def test_what_is_not_answered_to_its_end_is_missing(
    found: Sequence[Mapping[str, Any]], missing: Sequence[str]
) -> None:
    watched = Watched()
    outcome = ArrivedAnswers({P0: watched.log})
    outcome.add(found, watched.truths)
    assert list(outcome.missing()) == missing


def test_streams_are_in_order_each_for_itself_where_that_is_promised() -> None:
    by_stream = Watched(by_stream=True)
    by_stream.deliver(SECOND[0], FIRST[0], SECOND[1], *FIRST[1:], SECOND[2])
    noticed(lambda: Watched(by_stream=True).deliver(SECOND[0], SECOND[2]), "expected is row 1")


def test_what_is_committed_beyond_the_next_record_must_be_acknowledged_too() -> None:
    watched = Watched(by_stream=True)
    beyond = Commit(0, "p1:0;0.0.;5.1;;")
    noticed(lambda: watched.life.committed(beyond), "not acknowledged is offset 5")
    watched.deliver(*SECOND)
    watched.log.letters.add(LETTER)
    watched.life.committed(beyond)


def test_what_was_committed_beyond_the_next_record_is_not_published_again() -> None:
    beyond = Commit(0, "p1:0;0.0.;5.1;;")
    Watched(beyond, by_stream=True).deliver(*FIRST)
    noticed(lambda: Watched(beyond, by_stream=True).deliver(SECOND[0]), "nothing more")
