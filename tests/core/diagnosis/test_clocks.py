"""Our clock beside a server's that tells whole seconds."""

import pytest

from penstock.core.diagnosis.clocks import ahead_s


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "theirs_s", "ahead"),
    [
        (100.5, 100.5, 100.0, 0.0),
        (160.5, 160.5, 100.0, 60.0),
        (40.5, 40.5, 100.0, -60.0),
        # A process without a processor: the question may have been answered at once, or just now.
        (100.5, 108.5, 100.0, 0.0),
        (100.5, 108.5, 108.0, 0.0),
        (160.5, 168.5, 100.0, 60.0),
        (40.5, 48.5, 108.0, -60.0),
    ],
)
def test_a_slow_answer_proves_no_wrong_clock(
    asked_s: float, answered_s: float, theirs_s: float, ahead: float
) -> None:
    assert ahead_s(asked_s, answered_s, theirs_s) == pytest.approx(ahead)
