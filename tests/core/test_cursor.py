import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.core.cursor import MAX_NUMBER, START, Cursor, decode, digest

NUMBERS = st.integers(0, MAX_NUMBER)


@given(NUMBERS, NUMBERS, st.text())
def test_a_cursor_comes_back_as_it_was_written(object_index: int, row: int, version: str) -> None:
    cursor = Cursor(object_index, row, digest("b/k", version) if row else "")
    text = cursor.encode()
    assert decode(text) == cursor
    assert text.isascii()
    assert len(text) <= 4_000


def test_the_beginning_of_a_record_needs_no_metadata() -> None:
    assert START.encode() == ""
    assert decode("") == START


@pytest.mark.parametrize(
    "metadata",
    [
        "p1:",
        "p1:1",
        "p1:1.2",
        "p1:1.2.",
        "p1:1.2.short",
        "p1:1.2.0123456789abcdef.more",
        "p1:-1.0.",
        "p1:1.x.0123456789abcdef",
        "p1:1.99999999999999999999.0123456789abcdef",
        "p2:1.2.0123456789abcdef",
        "somebody else's",
        "p1:①.0.",
    ],
)
def test_what_is_no_cursor_of_ours_is_worth_nothing(metadata: str) -> None:
    assert decode(metadata) is None


@given(st.text())
def test_no_metadata_is_ever_an_error(metadata: str) -> None:
    found = decode(metadata)
    assert found is None or found.row >= 0


def test_a_cursor_is_bound_to_the_objects_name_and_version() -> None:
    assert digest("b/k", "v1") != digest("b/k", "v2")
    assert digest("b/k", "v1") != digest("b/l", "v1")
    assert digest("b/k", None) == ""
