"""What `penstock compare` makes of the records of many workers."""

from io import StringIO
from typing import Any

import msgspec
import orjson
import pytest
from rich.console import Console

from penstock.messages.prediction import Source
from penstock.messages.shadow import Disagreement, ModelId, Summary, encode_shadow, said
from penstock.ops.compare import Comparing, ComparisonSums, render


def summary(number: int, worker: str = "w", **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "since": 1_000 * number,
        "until": 1_000 * number + 1_000,
        "live": ModelId("rows"),
        "shadow": ModelId("v2", "2"),
        "tolerance": 0.1,
        "pointers": ("/score",),
        "rows": 100,
        "agreed": 99,
        "streams": {"a": (60, 60), "b": (40, 39)},
        "dropped": 5,
        "unanswered": 7,
        "unsent": 0,
        "live_took": {20: 3},
        "shadow_took": {40: 3},
    }
    return encode_shadow(Summary(id=f"{worker}/{number}", **(fields | changes)))


def disagreement(row: int, stream: str = "b", version: str = "2") -> bytes:
    return encode_shadow(
        Disagreement(
            id=f"refs/0/7/0/{row}",
            stream=stream,
            source=Source("refs", 0, 7),
            object=None,
            row=row,
            at=1_000,
            live=said("rows", None, b'{"score":0.1}', None),
            shadow=said("v2", version, b"null", "too\x1b[31m hot"),
        )
    )


def taken(*values: bytes | None, streams: tuple[str, ...] = ()) -> Comparing:
    comparing = Comparing(streams, examples=2)
    for value in values:
        comparing.take(value)
    return comparing


def only(comparing: Comparing) -> ComparisonSums:
    (found,) = comparing.found()
    return found


def test_summaries_of_all_workers_add_up_and_one_that_comes_twice_counts_once() -> None:
    comparison = only(taken(summary(1), summary(1), summary(2), summary(1, "other"), summary(2)))
    assert comparison.share == (300, 297)
    assert comparison.sums.tally.streams == {"a": (180, 180), "b": (120, 117)}
    assert (comparison.sums.dropped, comparison.sums.unanswered) == (15, 21)
    assert (comparison.since, comparison.until) == (1_000, 3_000)
    assert comparison.sums.live_took.quantile_s(0.5) == pytest.approx(0.001)
    assert comparison.sums.shadow_took.quantile_s(0.5) == pytest.approx(0.01)


def test_another_version_or_another_tolerance_is_another_comparison() -> None:
    comparing = taken(summary(1), summary(2, shadow=ModelId("v2", "3")), summary(3, tolerance=0.2))
    assert [one.share.rows for one in comparing.found()] == [100, 100, 100]
    assert comparing.found()[-1].rules.tolerance == 0.2


def test_the_latest_examples_are_those_of_the_same_models() -> None:
    comparing = taken(summary(1), *map(disagreement, range(5)), disagreement(9, version="3"))
    assert [example.row for example in only(comparing).examples] == [3, 4]


def test_only_streams_that_are_asked_for_count() -> None:
    comparing = taken(
        summary(1), disagreement(1, stream="a"), disagreement(2), streams=("b*", "none")
    )
    comparison = only(comparing)
    assert comparison.share == (40, 39)
    assert [example.row for example in comparison.examples] == [2]


def test_what_is_no_such_record_is_counted() -> None:
    assert taken(None, b"{}", b'{"kind":"other"}', summary(1)).strange == 3


def test_a_summary_that_no_worker_has_numbered_is_counted_like_a_strange_record() -> None:
    whole = summary(1)
    unnumbered = whole.replace(b'"w/1"', b'"by hand"')
    assert unnumbered != whole
    comparing = taken(unnumbered, whole)
    assert comparing.strange == 1
    assert only(comparing).share == only(taken(whole)).share


def test_the_agreement_is_sure_by_the_lower_end_of_its_interval() -> None:
    comparison = only(taken(summary(1)))
    assert comparison.surely(0.94)
    assert not comparison.surely(0.95)  # 99 of 100 might be that, too
    assert not only(taken(summary(1, rows=0, agreed=0, streams={}))).surely(0.01)


def test_the_report_as_json_has_all_of_it() -> None:
    report = orjson.loads(msgspec.json.encode(only(taken(summary(1), disagreement(3))).as_json(5)))
    assert report["agreement"] == 0.99
    assert report["interval"] == pytest.approx([0.9455, 0.9982], abs=1e-4)
    assert report["live_ms"]["p50"] == pytest.approx(1.0)
    assert report["worst"] == [{"stream": "b", "rows": 40, "agreed": 39}]
    assert report["examples"][0]["shadow"]["error"] == "too\x1b[31m hot"
    assert report["shadow"] == {"name": "v2", "version": "2"}


def test_the_table_says_how_sure_it_is_and_sends_no_escapes() -> None:
    console = Console(width=200, record=True, file=StringIO())
    console.print(render(only(taken(summary(1), disagreement(3))), worst=5))
    text = console.export_text(styles=False)
    assert "99.000 % (94.551 to 99.823 %) of 100 rows" in text
    assert "7 rows, the shadow did not answer" in text
    assert "rejected: too\\x1b[31m hot" in text
    assert "\x1b" not in text


def test_disagreements_without_a_record_are_told_with_their_reason() -> None:
    comparing = taken(
        summary(1, unsent=5, unsent_why={"many": 3, "unwritten": 2}),
        summary(2, unsent=4, unsent_why={"many": 4}),
        summary(3, unsent=1),
    )
    console = Console(width=120, record=True, file=StringIO())
    console.print(render(only(comparing), worst=5))
    said = console.export_text()
    assert "without a record: 7, too many came at once" in said
    assert "without a record: 2, the shadow topic could not be written" in said
    assert "without a record: 1, its worker did not say why" in said
    assert only(comparing).as_json(5)["unsent"] == 10
