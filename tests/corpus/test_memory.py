"""No case makes the process grow beyond a ceiling, whatever service is away: measured, not counted.

The byte budget is 1 MiB. On top of it come one decoding step, one release, and one message decoded.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.corpus.archives import BOMBS
from tests.corpus.heavy import HEAVY
from tests.corpus.measuring import AWAY

ROOT = Path(__file__).parents[2]
# The most was 43 MB, for 0.4 MB of inline numbers.
MOST_BYTES = 56_000_000
MOST_TIMES_SENT = 4
DEADLINE_S = 600


class Grown(NamedTuple):
    name: str
    services: str
    sent_bytes: int
    grown_bytes: int | None

    @property
    def is_too_much(self) -> bool:
        most_bytes = MOST_BYTES + MOST_TIMES_SENT * self.sent_bytes
        return self.grown_bytes is None or self.grown_bytes > most_bytes


@pytest.fixture(scope="module")
def measured() -> list[Grown]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.corpus.measuring"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=DEADLINE_S,
    )
    return [Grown(*json.loads(line)) for line in child.stdout.splitlines()]


@pytest.mark.timeout(DEADLINE_S + 10)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is asked of Linux' /proc")
def test_no_case_grows_beyond_its_ceiling_whatever_service_is_away(measured: list[Grown]) -> None:
    assert [grown for grown in measured if grown.is_too_much] == []
    assert len(measured) > 400 + len(BOMBS) + len(HEAVY) * 2
    assert {grown.services for grown in measured} == {"well", *AWAY}
    # The measure itself works: a case of several megabytes is seen.
    assert max(grown.grown_bytes or 0 for grown in measured) > 5_000_000
