"""When the demo calls its proof a failure."""

import msgspec
import pytest

from penstock.tools.demo.job import broken
from penstock.tools.demo.progress import DemoProgress, DemoStream
from penstock.tools.verify.findings import VerifyReport

NONE = (
    "ignored", "markers", "rejected", "outside", "unproven", "duplicates", "announced_again",
    "results",
)  # fmt: skip
COUNTS = dict.fromkeys(NONE, 0)
GOOD = msgspec.convert(
    {
        "references": 2,
        "objects": 2,
        "rows": 30,
        "streams": 1,
        "dead_letters": 0,
        "violated": {},
        "violations": (),
        **COUNTS,
    },
    VerifyReport,
)


@pytest.fixture
def progress() -> DemoProgress:
    """Two objects of 15 rows each were sent."""
    sent = DemoProgress([DemoStream("a", "csv")])
    sent.sent(0, "a/0", 0.0, rows=15)
    sent.sent(0, "a/1", 0.2, rows=15)
    return sent


def test_the_proof_holds_if_everything_was_answered_once(progress: DemoProgress) -> None:
    assert broken(GOOD, progress, restarts=0) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"violated": {"lost": 1}}, "break a promise"),
        ({"objects": 1}, "2 objects were announced, the topics know 1"),
        ({"rows": 29}, "30 rows were written, 29 were answered"),
        ({"rejected": 1}, "1 good rows were rejected"),
        ({"duplicates": 3}, "3 records were written twice"),
    ],
)
def test_the_proof_names_everything_that_is_wrong(
    progress: DemoProgress, change: dict[str, object], fault: str
) -> None:
    (finding,) = broken(msgspec.structs.replace(GOOD, **change), progress, restarts=0)
    assert fault in finding


def test_a_worker_that_took_over_may_answer_again(progress: DemoProgress) -> None:
    assert broken(msgspec.structs.replace(GOOD, duplicates=3), progress, restarts=1) == []
