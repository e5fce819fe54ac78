"""What doctor says of routes, by the messages that it sees."""

from penstock.core.routing.model_routes import UNMATCHED_AFTER, ModelRoute, Routes
from penstock.core.routing.stream_keys import StreamNames
from penstock.tools.doctor.finding import Finding
from penstock.tools.doctor.models_and_routes import RouteMatches


def seen(count: int, *globs: str) -> RouteMatches:
    routes = [ModelRoute(("other",), stream=glob) for glob in globs]
    matches = RouteMatches(Routes(("rows", "other"), routes), StreamNames(None))
    for number in range(count):
        value = b'{"bucket": "plat", "key": "site-1/cam-1/%d.csv"}' % number
        matches.take(0, number, None, value)
    matches.take(0, count, b"site-1/cam-1", b'{"inline": [[1]]}')
    matches.take(0, count + 1, None, b"no reference")
    return matches


def test_a_route_that_none_of_many_objects_match_is_warned_of() -> None:
    found = seen(UNMATCHED_AFTER, "site-1/*", "plat/*").verdict()
    assert found.level == "mind"
    assert "none of the newest 1,001 objects match the route of stream = 'plat/*'" in found.said
    assert "streams are called like 'site-1/cam-1'" in found.said


def test_of_few_objects_it_may_be_chance() -> None:
    found = seen(10, "plat/*").verdict()
    assert found.level == "ok"
    assert "none of 11 objects so far match stream = 'plat/*'" in found.said


def test_routes_that_match_are_well() -> None:
    found = seen(10, "site-*").verdict()
    assert (found.level, found.said) == ("ok", "each matches some of the newest 11 objects")


SPLIT = ModelRoute(("rows",), stream="cam-*", split={"other": 20.0})


def shares(*numbers: int) -> list[Finding]:
    matches = RouteMatches(Routes(("rows", "other"), [SPLIT]), StreamNames(None))
    for number in numbers:
        value = b'{"bucket": "plat", "key": "cam-%d/1.csv"}' % number
        for offset in range(2):
            matches.take(0, offset, None, value)
    return matches.shares()


def test_a_split_is_told_with_the_number_of_streams_that_it_moves() -> None:
    (found,) = shares(*range(1_000))
    moved = sum(SPLIT.model_of(f"cam-{number}") == "other" for number in range(1_000))
    assert found.level == "ok"
    assert f"other answers {moved} of 1,000 streams" in found.said
    assert "whole streams go, by a hash of names" in found.said
    assert shares() == []


def test_a_split_that_moves_far_more_of_few_streams_is_to_be_minded() -> None:
    moved = [number for number in range(100) if SPLIT.model_of(f"cam-{number}") == "other"]
    (found,) = shares(*moved[:4], next(n for n in range(100) if n not in moved))
    assert found.level == "mind"
    assert "other answers 4 of 5 streams seen, by a split of 20 %" in found.said
