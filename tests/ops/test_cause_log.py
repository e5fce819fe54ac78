"""Which causes the log tells of, and how often; by virtual time."""

from typing import Any

import pytest

from penstock.core.diagnosis.diagnose import diagnose, with_diagnosis
from penstock.ops.status import QUIET_S, CauseLog
from tests.support.status_documents import document, stream
from tests.support.troubles import TROUBLES, troubled


def seen(whole: dict[str, Any]) -> dict[str, Any]:
    return with_diagnosis(whole, diagnose(whole))


@pytest.mark.parametrize("cause", TROUBLES)
def test_a_cause_is_written_once_unless_an_event_tells_of_it(
    cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = CauseLog()
    for second in range(0, 300, 2):
        log.note(seen(troubled(cause)), float(second))
    lines = [record.getMessage().lower() for record in caplog.records]
    if TROUBLES[cause].kind in ("stopped", "refused", "away", "unanswered_rows"):
        assert lines == []
    else:
        [line] = lines
        assert line.startswith(TROUBLES[cause].line.lower())


def test_the_end_of_a_cause_is_written_and_one_that_comes_and_goes_is_not_written_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log, ill = CauseLog(), seen(troubled("model too slow"))
    for second in range(0, 50, 10):
        log.note(ill, float(second))
        log.note(seen(document()), second + 4.0)
    began, ended = (record.getMessage() for record in caplog.records)
    assert began.startswith("the model is the limit")
    assert ended.startswith("over after 4 s: the model is the limit")
    log.note(ill, QUIET_S)
    assert len(caplog.records) == 3


def test_a_cause_is_written_again_when_other_streams_begin_to_wait_with_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    late, mate = stream("cam-7", age_s=4.2), stream("cam-8", age_s=3.0)
    alone, shared = (
        seen(document() | {"streams": streams, "streams_known": 12})
        for streams in ([late], [late, mate])
    )
    log = CauseLog()
    for second, whole in enumerate([alone, shared, alone, shared, document() | {"problems": []}]):
        log.note(whole, 2.0 * second)
    assert [
        record.getMessage().partition(";")[0].partition(". ")[0] for record in caplog.records
    ] == [
        "cam-7 is 4.2 s behind",
        "cam-7 is 4.2 s behind, and 1 more of refs/0 wait with it",
        "over after 8 s: cam-7 is 4.2 s behind, and 1 more of refs/0 wait with it",
    ]


def test_nothing_is_written_of_an_outage_that_is_over_while_its_problem_is_still_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log, away = CauseLog(), seen(troubled("store hung"))
    log.note(away, 0.0)
    log.note({**away, "outages": []}, 2.0)
    log.note(seen(document()), 4.0)
    assert not caplog.records
