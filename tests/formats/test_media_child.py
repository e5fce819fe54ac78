"""The process that decodes media dies alone: what crashes or hangs it is that object's failure."""

from collections.abc import Iterator

import pytest

from consumers.errors import Poison, Transient
from consumers.formats.base import RowOptions
from consumers.formats.format import Format, makes
from consumers.formats.media import MOST_IDLE, Children, reader
from consumers.formats.whole import by_ranges

# Long enough for an interpreter to start on a busy machine.
SILENCE_S = 10.0


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children("tests.support.bad_decoder", SILENCE_S)
    yield made
    made.end()


def read(children: Children, word: str) -> None:
    format = Format("audio", makes("matrix"), ranged=reader("audio", children))
    list(by_ranges(RowOptions(), format, word.ljust(8).encode()))


@pytest.mark.parametrize(("word", "says"), [("crash", "SIGSEGV"), ("nonsense", "nonsense")])
def test_a_crash_is_the_objects_failure(children: Children, word: str, says: str) -> None:
    with pytest.raises(Poison, match=says) as caught:
        read(children, word)
    assert caught.value.code == "bad_format"
    read(children, "well")


def test_a_child_that_hangs_is_ended() -> None:
    children = Children("tests.support.bad_decoder", 2.0)
    with pytest.raises(Poison, match="hangs"):
        read(children, "hang")
    children.end()


def test_a_child_that_was_killed_says_nothing_of_the_object(children: Children) -> None:
    with pytest.raises(Transient):
        read(children, "killed")


def test_a_used_child_that_crashes_is_no_proof_against_the_object(children: Children) -> None:
    read(children, "well")
    with pytest.raises(Transient):
        read(children, "crash")
    with pytest.raises(Poison):
        read(children, "crash")


def test_few_children_wait(children: Children) -> None:
    with children.lent() as one, children.lent() as two, children.lent() as three:
        assert len({one, two, three}) == 3
    with children.lent() as again:
        assert again in {one, two, three}
    ended = [child for child in (one, two, three) if child.exit_code() == -9]
    assert len(ended) >= 3 - MOST_IDLE
