"""Reasons of bad rows as stretches: what goes in comes out, cut anywhere."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows.rejections import Reasons, ReasonsBuilder


def built(texts: list[str]) -> Reasons:
    builder = ReasonsBuilder()
    for text in texts:
        builder.add(1, text)
    return builder.build()


def each(reasons: Reasons) -> list[str]:
    return [text for rows, text in reasons for _ in range(rows)]


@given(st.lists(st.sampled_from(["", "a", "ü", "no number"]), min_size=1, max_size=20), st.data())
def test_every_row_keeps_its_reason_wherever_it_is_cut(
    texts: list[str], data: st.DataObject
) -> None:
    reasons = built(texts)
    assert (reasons.rows, each(reasons)) == (len(texts), texts)
    assert reasons.stretches == sum(1 for _ in groupby(texts))
    start = data.draw(st.integers(0, len(texts) - 1))
    stop = data.draw(st.integers(start + 1, len(texts)))
    part = reasons.cut(start, stop)
    assert (part.rows, each(part)) == (stop - start, texts[start:stop])


def test_a_million_rows_with_one_reason_take_no_more_than_one() -> None:
    builder = ReasonsBuilder()
    builder.add(1_000_000, "row is not JSON")
    assert builder.build().nbytes == built(["row is not JSON"]).nbytes


def test_a_file_name_that_is_no_utf8_can_be_a_reason() -> None:
    assert each(built(["\udcff"])) == ["?"]
