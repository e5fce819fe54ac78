"""What a row of each stream costs, from calls that carry rows of many."""

from math import inf
from random import Random
from statistics import mean

import pytest

from penstock.core.rows.blocks import Block
from penstock.core.window.cost_fit import FIT_S, FITTED
from penstock.core.window.stream_costs import (
    DOUBT_S,
    EXCEEDING_ROWS,
    MOST_STREAMS,
    StreamCosts,
)
from penstock.core.window.window import Batch, BatchWindow, WindowLimits
from tests.core.builders import block as block_of
from tests.core.builders import ticket

BASE_S = 0.010
ROW_S = 0.001
DEAR = "s0"


def block(stream: str, rows: int) -> Block:
    return block_of(ticket(stream), rows)


class Mixture:
    """Calls with rows of some of the streams, whose times vary by 30 %. One is 50 x as dear."""

    def __init__(self, streams: int, most_together: int, seed: int) -> None:
        self.random = Random(seed)
        self.cost_s = {f"s{number}": ROW_S for number in range(streams)}
        self.cost_s[DEAR] *= 50
        self.most_together = most_together
        self.costs = StreamCosts()
        self.now_s = 0.0
        self.took_s = 0.0
        # A ticket is made once for each stream.
        self.blocks = {
            stream: [block(stream, rows) for rows in range(1, 9)] for stream in self.cost_s
        }

    def call(self, count: int) -> None:
        for _ in range(count):
            streams = self.random.sample(
                list(self.cost_s), self.random.randint(1, self.most_together)
            )
            blocks = [self.random.choice(self.blocks[stream]) for stream in streams]
            exact_s = BASE_S + sum(one.rows * self.cost_s[one.ticket.stream] for one in blocks)
            took_s = exact_s * max(0.1, self.random.gauss(1.0, 0.3))
            self.now_s += 0.05
            self.took_s += took_s
            self.costs.answered(blocks, took_s, self.now_s)
            self.costs.fit(self.now_s)
        self.now_s += 1.0
        self.costs.fit(self.now_s)

    def error(self, stream: str) -> float:
        return abs(self.costs.lately[stream].row_s / self.cost_s[stream] - 1.0)

    @property
    def errors(self) -> list[float]:
        return [self.error(stream) for stream in self.costs.lately if stream != DEAR]


@pytest.mark.parametrize(("streams", "most_together"), [(8, 4), (8, 8), (60, 12), (60, 20)])
def test_after_200_calls_each_cost_is_known_to_a_fifth(streams: int, most_together: int) -> None:
    mixtures = [Mixture(streams, most_together, seed) for seed in range(8)]
    for mixture in mixtures:
        mixture.call(200)
        assert mixture.costs.costly is not None
        assert mixture.costs.costly.stream == DEAR
        assert mixture.costs.costly.times > 15
    assert mean(mixture.error(DEAR) for mixture in mixtures) <= 0.2
    assert mean(mean(mixture.errors) for mixture in mixtures) <= 0.2


def test_a_change_of_a_cost_is_followed() -> None:
    mixture = Mixture(8, 4, 1)
    mixture.cost_s[DEAR] = ROW_S
    mixture.call(200)
    assert mixture.error(DEAR) <= 0.3
    mixture.cost_s[DEAR] = 50 * ROW_S
    # Long before all calls of the fit have it, it is known that it is dear.
    mixture.call(20)
    assert mixture.costs.lately[DEAR].row_s > 5 * ROW_S
    mixture.call(256)
    assert mixture.error(DEAR) <= 0.2
    mixture.cost_s[DEAR] = ROW_S
    mixture.call(256)
    assert mixture.error(DEAR) <= 0.3


def test_it_is_told_how_long_ago_the_last_slow_call_of_the_dearest_was() -> None:
    mixture = Mixture(8, 4, 1)
    mixture.call(200)
    costly = mixture.costs.costly
    assert costly is not None
    assert costly.ago_s <= 1.5
    mixture.cost_s[DEAR] = ROW_S
    mixture.call(80)
    costly = mixture.costs.costly
    assert costly is None or costly.ago_s >= 5.0


def blamed(seed: int) -> list[str | None]:
    """Four cameras twice a second, in two calls by chance. After 30 s every third frame of one
    takes two seconds, and any other 20 ms. Who is named in each second from then on.
    """
    random, costs, now_s = Random(seed), StreamCosts(), 0.0
    frames = [block(f"s{camera}", 4) for camera in range(4)]
    found: list[str | None] = []
    for turn in range(100):
        is_after = turn >= 60
        first = [frame for frame in frames if random.random() < 0.5]
        for part in (first, [frame for frame in frames if frame not in first]):
            now_s += 0.25
            if part:
                is_dear = is_after and turn % 3 == 0 and frames[0] in part
                took_s = 0.003 + 0.02 * len(part) * is_after + 2.0 * is_dear
                costs.answered(part, took_s * random.uniform(0.8, 1.2), now_s)
        costs.fit(now_s)
        most = costs.costly
        if is_after and turn % 2:
            found.append(most.stream if most is not None and most.times > 5 else None)
    return found


def test_a_stream_that_is_dear_now_and_then_is_named_within_seconds_and_no_other_is() -> None:
    """Rows cost nothing before. By chance another one may be in all slow calls for a while."""
    found = [blamed(seed) for seed in range(8)]
    assert {name for each in found for name in each} == {None, DEAR}
    assert sum(DEAR in each[:8] for each in found) >= 7
    assert all(each[-1] == DEAR for each in found)


def test_streams_that_always_come_together_share_their_cost() -> None:
    costs, pair, other = StreamCosts(), [block("a", 2), block("b", 2)], [block("c", 4)]
    for number in range(200):
        costs.answered(pair, 0.050, number * 0.05)
        costs.answered(other, 0.020, number * 0.05)
        costs.fit(number * 0.05)
    costs.fit(11.0)
    assert costs.lately["a"].row_s == pytest.approx(costs.lately["b"].row_s)
    assert costs.lately["a"].share == pytest.approx(5 / 14, rel=0.05)


def test_the_time_of_calls_is_divided_among_the_streams_and_nothing_is_negative() -> None:
    mixture = Mixture(60, 12, 3)
    # Rows that cost next to nothing: by chance, calls with more of them are shorter.
    mixture.cost_s |= dict.fromkeys([f"s{number}" for number in range(1, 30)], 0.0)
    mixture.call(300)
    spent_s = mixture.costs.spent_s
    assert sum(spent_s.values()) == pytest.approx(mixture.took_s)
    assert min(spent_s.values()) >= 0.0
    costs = mixture.costs.lately.values()
    assert min(cost.row_s for cost in costs) >= 0.0
    assert sum(cost.share for cost in costs) == pytest.approx(1.0)


def test_a_new_stream_costs_what_most_cost_until_its_calls_tell() -> None:
    mixture = Mixture(8, 4, 1)
    mixture.call(200)
    mixture.costs.answered([block("new", 4)], BASE_S + 4 * ROW_S, mixture.now_s)
    mixture.costs.fit(mixture.now_s + 1.0)
    assert mixture.costs.lately["new"].row_s == pytest.approx(ROW_S, rel=0.3)


def test_of_many_streams_the_dear_one_is_found_and_the_rest_have_one_cost() -> None:
    mixture = Mixture(4 * FITTED, 20, 1)
    mixture.call(256)
    assert mixture.costs.costly is not None
    assert mixture.costs.costly.stream == DEAR
    assert mixture.error(DEAR) <= 0.3


def test_what_is_known_is_bounded_and_ends_with_the_last_minute() -> None:
    costs = StreamCosts()
    for number in range(MOST_STREAMS + 10):
        costs.answered([block(f"s{number}", 1)], 0.01, 0.0)
    assert len(costs.spent_s) == MOST_STREAMS
    assert "s9" not in costs.spent_s
    costs.fit(2.0)
    assert costs.busy > 0.0
    costs.fit(100.0)
    assert (costs.lately, costs.costly, costs.busy) == ({}, None, 0.0)


def test_a_single_stream_is_dearer_than_nobody() -> None:
    costs = StreamCosts()
    costs.answered([block("s", 4)], 0.02, 0.0)
    costs.fit(1.0)
    assert costs.costly is None
    assert costs.lately["s"].share == 1.0


def prices_of(costs: StreamCosts) -> tuple[dict[str, int], set[str]]:
    return dict(costs.prices.rows), set(costs.prices.apart)


@pytest.mark.parametrize("streams", [1, 8, 60, 200])
def test_rows_that_cost_the_same_have_no_price_though_calls_vary(streams: int) -> None:
    random = Random(streams)
    blocks = [[block(f"s{n}", rows) for rows in range(1, 9)] for n in range(streams)]
    costs, away = StreamCosts(), 0
    for number in range(400):
        some = random.sample(blocks, random.randint(1, min(streams, 12)))
        chosen = [random.choice(one) for one in some]
        rows = sum(one.rows for one in chosen)
        took_s = (BASE_S + rows * ROW_S) * max(0.1, random.gauss(1.0, 0.3))
        # Now and then a call is held up by something else.
        took_s += 0.2 * (random.random() < 0.01)
        costs.answered(chosen, took_s, 0.05 * number)
        costs.fit(0.05 * number)
        # After a call that was held up, its streams may go apart for one row.
        rows_of, apart = prices_of(costs)
        assert rows_of.keys() == apart
        away += len(apart)
    assert away <= 0.01 * 400 * streams


def test_a_stream_whose_rows_take_longer_than_a_call_goes_apart_by_its_price() -> None:
    mixture = Mixture(8, 4, 3)
    mixture.cost_s[DEAR] = 100 * ROW_S
    mixture.call(200)
    rows, apart = prices_of(mixture.costs)
    assert apart == {DEAR}
    # A usual row costs 1 ms, and its part of the fixed cost is another 0.8 ms.
    assert 30 < rows[DEAR] < 80
    mixture.cost_s[DEAR] = ROW_S
    mixture.call(600)
    assert prices_of(mixture.costs) == ({}, set())


def test_a_stream_that_is_dear_but_short_beside_a_call_has_a_price_and_stays() -> None:
    mixture = Mixture(8, 4, 3)
    mixture.cost_s[DEAR] = 5 * ROW_S
    for stream in mixture.blocks:
        mixture.blocks[stream] = [block(stream, 2)]
    mixture.call(200)
    rows, apart = prices_of(mixture.costs)
    assert (rows.keys(), apart) <= ({DEAR}, set())


def test_after_a_slow_call_its_streams_go_apart_until_one_row_has_cleared_them() -> None:
    costs, now_s = StreamCosts(), 0.0
    for stream in ("a", "b", "c", "d", "e"):
        costs.answered([block(stream, 1)], 0.01, now_s)
    # Two new cameras, and one takes 1.5 s.
    costs.answered([block(DEAR, 1), block("new", 1), block("a", 1)], 1.5, now_s)
    assert costs.prices.apart == {DEAR, "new"}
    costs.answered([block("new", 1)], 0.01, now_s)
    assert costs.prices.apart == {DEAR}
    costs.answered([block(DEAR, 1)], 1.5, now_s)
    assert costs.prices.apart == {DEAR}


def test_streams_that_were_in_all_slow_calls_go_apart_until_one_is_found() -> None:
    costs, now_s = StreamCosts(), 0.0
    for _ in range(40):
        for some in (["a", DEAR], ["b", "c"]):
            now_s += 0.25
            costs.answered([block(stream, 4) for stream in some], 0.02, now_s)
            costs.fit(now_s)
    assert not costs.prices.apart
    # Now some objects of one are a hundred times as dear, but never come without the other's.
    for _ in range(2):
        now_s += 1.0
        costs.answered([block("a", 4), block(DEAR, 4)], 2.0, now_s)
        costs.fit(now_s)
    assert costs.prices.apart == {"a", DEAR}
    for stream, took_s in (("a", 0.02), (DEAR, 2.0), (DEAR, 2.0)):
        now_s += 1.0
        costs.answered([block(stream, 4)], took_s, now_s)
        costs.fit(now_s)
    assert costs.costly is not None
    assert costs.costly.stream == DEAR
    assert "a" not in costs.prices.apart


def test_streams_of_one_slow_call_go_apart_for_some_seconds_at_most() -> None:
    costs, now_s = StreamCosts(), 0.0
    apart_s = 0.0
    for number in range(200):
        now_s += 0.25
        some = ["a", "b"] if number % 2 else ["c", "d"]
        costs.answered([block(stream, 4) for stream in some], 2.0 if number == 81 else 0.02, now_s)
        costs.fit(now_s)
        apart_s += 0.25 * bool(costs.prices.apart)
    assert 0.0 < apart_s <= DOUBT_S + FIT_S


def test_if_all_streams_are_in_each_slow_call_half_goes_apart_and_then_the_dear_one() -> None:
    costs, now_s = StreamCosts(), 0.0
    takes_s = {f"s{number}": 0.2 if f"s{number}" == DEAR else 0.004 for number in range(8)}
    calls = 0
    while not costs.prices.rows and calls < 40:
        apart = costs.prices.apart
        for some in (takes_s.keys() - apart, takes_s.keys() & apart):
            if some:
                took_s = sum(takes_s[stream] for stream in some)
                now_s += took_s
                costs.answered([block(stream, 1) for stream in sorted(some)], took_s, now_s)
                costs.fit(now_s)
                calls += 1
    assert DEAR in costs.prices.apart
    for stream in sorted(costs.prices.apart - {DEAR}):
        costs.answered([block(stream, 1)], 0.006, now_s)
    assert costs.prices.apart == {DEAR}


def test_few_rows_beside_many_are_not_dear_where_calls_take_long_whatever_is_in_them() -> None:
    costs, random = StreamCosts(), Random(1)
    for number in range(200):
        some = [block(f"s{n}", 1 if n < 2 else 100) for n in random.sample(range(8), 2)]
        costs.answered(some, 0.3 + 0.0001 * sum(one.rows for one in some), number)
        costs.fit(number)
        assert not costs.prices.rows


def test_streams_that_all_cost_much_are_not_told_apart_for_ever() -> None:
    """Where calls are slow because the model is, half goes apart for a few calls, ever less
    often.
    """
    costs, now_s = StreamCosts(), 0.0
    random = Random(1)
    split = 0
    streams = {f"s{number}" for number in range(8)}
    is_split = False
    while now_s < 320.0:
        apart = costs.prices.apart
        for some in (streams - apart, streams & apart):
            if some:
                took_s = 0.8 * random.gauss(1.0, 0.1)
                now_s += took_s
                costs.answered([block(stream, 1) for stream in some], took_s, now_s)
                costs.fit(now_s)
        split += bool(costs.prices.apart) and not is_split
        is_split = bool(costs.prices.apart)
        assert not costs.prices.rows
    # After 0, 2, 6, 14, 30, 62, 126 and 254 s.
    assert split == 8


def test_a_row_of_many_that_come_at_one_instant_is_found_within_seconds() -> None:
    """Eight cameras whose frames come in the same instant, so each call has one of each. After a
    minute those of one take longer, and the server works on one call at a time.
    """
    for dear_s in (0.1, 0.15, 0.3):
        costs, window = StreamCosts(), BatchWindow(WindowLimits(512, 1 << 30, 0.01, eager=True))
        frames = [f"s{camera}" for camera in range(8)]
        calls: list[tuple[float, Batch]] = []
        free_s = named_s = 0.0
        ticks = 0
        while not named_s and ticks < 65 * 5:
            now_s = min([call[0] for call in calls] or [inf])
            if ticks * 0.2 <= now_s:
                now_s = ticks * 0.2
                ticks += 1
                for frame in frames:
                    window.add(block(frame, 1), now_s)
            else:
                _, batch = calls.pop(0)
                costs.answered(batch.blocks, now_s - batch.taken_s, now_s)
                costs.fit(now_s)
                window.reprice(costs.prices)
                is_named = costs.costly is not None and costs.costly.stream == DEAR
                named_s = now_s if is_named else 0.0
            most_calls = 1 if costs.prices.alone_until_s else 2
            while len(calls) < most_calls and (due := window.take(now_s)) is not None:
                streams = [part.ticket.stream for part in due.blocks]
                is_dear = now_s >= 60.0 and DEAR in streams
                free_s = max(now_s, free_s) + 0.004 + 0.001 * len(streams) + dear_s * is_dear
                calls.append((free_s, due))
        assert DEAR in costs.prices.rows
        assert 60.0 < named_s <= 64.0


def test_calls_that_wait_in_the_server_for_each_other_are_told_from_slow_ones() -> None:
    """Eight streams by four calls at a time, and a server that works on one at a time."""
    costs, random = StreamCosts(), Random(2)
    free_s, ends_s = 0.0, [0.0] * 4
    for number in range(200):
        began_s = ends_s[number % 4]
        stream = f"s{random.randint(0, 7)}"
        takes_s = (0.2 if stream == DEAR else 0.01) * random.gauss(1.0, 0.1)
        free_s = max(free_s, began_s) + takes_s
        ends_s[number % 4] = free_s
        costs.answered([block(stream, 1)], free_s - began_s, free_s)
        costs.fit(free_s)
    assert costs.prices.apart == {DEAR}
    assert costs.lately[DEAR].row_s == pytest.approx(0.2, rel=0.3)


def test_a_slow_call_among_more_streams_than_are_known_is_an_ordinary_call() -> None:
    costs, streams = (
        StreamCosts(),
        [block(f"s{number}", 1) for number in range(MOST_STREAMS + 1_000)],
    )
    for call in range(120):
        blocks = [streams[(call * 300 + number) % len(streams)] for number in range(300)]
        costs.answered(blocks, 0.120 if call % 40 == 39 else 0.010, 0.05 * (call + 1))
        if call % 20 == 0:
            costs.fit(0.05 * (call + 1))
    assert len(costs.spent_s) <= MOST_STREAMS


def test_a_stream_whose_answers_are_beyond_all_bounds_goes_apart_for_a_minute() -> None:
    costs = StreamCosts()
    costs.exceeded("long", 0.0)
    assert costs.prices.apart == {"long"}
    assert costs.prices.most_apart is not None
    assert costs.prices.most_apart // costs.prices.of("long") == EXCEEDING_ROWS
    for second in range(62):
        costs.answered([block("short", 1)], 0.005, float(second))
        costs.fit(float(second))
        assert ("long" in costs.prices.apart) is (second < 60)
