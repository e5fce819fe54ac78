"""`penstock demo --scenes` as a person runs it, and what its table says."""

import re
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.tools.demo.scenes import line, view
from tests.demo.test_demo import assert_no_process_is_left, demo, finish, lines_until

PROOF = re.compile(r"✔ ([\d,]+) predictions: ([\d,]+) in ([\d,]+) scenes \(.*\), ([\d,]+) late")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_demo_ends_with_every_prediction_in_its_place(tmp_path: Path) -> None:
    with demo(tmp_path, "--scenes", "--seconds", "4", "--streams", "4") as process:
        page = lines_until(process, r"http://[\d.:]+/#token=\S+")
        assert page.string.startswith("the live page")
        code, out, err = finish(process)
    assert code == 0, err
    match = PROOF.search(out)
    assert match is not None, out
    predictions, in_scenes, _, late = map(number, match.groups())
    # At 5 Hz: three cameras all the time, and one that is away for a third of it.
    assert predictions == in_scenes + late
    assert 3 * 20 < predictions < 4 * 20
    assert_no_process_is_left(tmp_path)


def test_scenes_are_for_the_embedded_broker(tmp_path: Path) -> None:
    with demo(tmp_path, "--scenes", "--stack") as process:
        code, _, err = finish(process)
    assert (code, "embedded broker" in err) == (2, True)


def status(state: str) -> dict[str, Any]:
    members = [{"member": "cam-1", "state": "present"}, {"member": "cam-2", "state": state}]
    last = [{"present": 1, "members": 2}]
    counts = {"complete": 7, "quorum": 2}
    return {"sites": [{"site": "site-1", "members": members, "counts": counts, "last": last}]}


def test_members_that_are_away_are_named() -> None:
    assert line(status("gone")) == "site-1: 1 of 2 (not cam-2)"
    assert line(status("present")) == "site-1: 2 of 2"
    console = Console(record=True, width=100)
    console.print(view(status("late")))
    text = console.export_text()
    assert all(part in text for part in ("site-1", "cam-2", "9", "7", "1/2"))
