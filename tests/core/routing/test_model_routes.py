import pytest

from penstock.core.routing.model_routes import ModelRoute, Routes

STREAMS = [f"site-{site}/cam-{cam}" for site in range(100) for cam in range(20)]


def test_the_first_route_that_matches_decides_and_else_the_default() -> None:
    routes = Routes(
        ["rows", "a", "b"],
        [ModelRoute(("a",), stream="site-1/*"), ModelRoute(("b",), bucket="new-*", key="*.csv")],
    )
    assert routes.of("site-1/cam", "new-1", "x.csv") == ("a",)
    assert routes.of("site-2/cam", "new-1", "x.csv") == ("b",)
    assert routes.of("site-2/cam", "new-1", "x.tar") == ("rows",)
    assert routes.of("site-2/cam", "old", "x.csv") == ("rows",)


def test_inline_rows_match_no_bucket_and_no_key() -> None:
    routes = Routes(["rows", "a"], [ModelRoute(("a",), key="*"), ModelRoute(("a",), stream="s")])
    assert routes.of("r", None, None) == ("rows",)
    assert routes.of("s", None, None) == ("a",)


@pytest.mark.parametrize("percent", [0.0, 0.5, 5.0, 50.0, 100.0])
def test_a_split_takes_its_share_of_the_streams(percent: float) -> None:
    route = ModelRoute(("rows",), split={"v2": percent})
    taken = sum(route.model_of(stream) == "v2" for stream in STREAMS)
    assert taken / len(STREAMS) * 100 == pytest.approx(percent, abs=1.5)


def test_a_larger_share_keeps_the_streams_of_the_smaller_one() -> None:
    small, large = (
        {
            stream
            for stream in STREAMS
            if ModelRoute(("rows",), split={"v2": share}).model_of(stream) == "v2"
        }
        for share in (5.0, 10.0)
    )
    assert small < large


def test_a_stream_keeps_its_model_on_every_worker_and_after_every_start() -> None:
    """What is said here is what other processes, and later versions, must say."""
    route = ModelRoute(("rows",), split={"v2": 30.0, "v3": 30.0})
    expected = ["v3", "rows", "v2", "v2", "rows", "rows", "v3", "v2"]
    assert [route.model_of(f"s{number}") for number in range(8)] == expected


def test_the_routes_in_force_are_told_in_one_line() -> None:
    routes = Routes(["rows", "v2"], [ModelRoute(("rows",), stream="s*", split={"v2": 5.0})])
    assert str(routes) == "s* to rows, 5 % to v2; else to rows"
