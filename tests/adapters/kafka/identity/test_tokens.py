"""When a provider of tokens is asked, and what serves while it is away."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.adapters.kafka.identity.tokens import LONGEST_PAUSE_S, BrokerTokens, Token
from penstock.errors import Transient

LIFE_S = 100.0


def test_what_a_provider_s_library_read_is_not_shown() -> None:
    """The error of a decoder holds the whole file."""
    tokens = BrokerTokens(lambda: Token(b"hush-hush \xe9".decode(), 0.0, LIFE_S))
    with pytest.raises(Transient, match="UnicodeDecodeError") as caught:
        tokens.current()
    assert "hush-hush" not in str(caught.value)


class Provider:
    """Clocks, and a provider whose tokens are numbers. `wall_s`: None while they agree."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.wall_s: float | None = None
        self.asked = 0
        self.is_away = False
        self.tokens = BrokerTokens(
            self.fetch, lambda: self.wall_s or self.now_s, lambda: self.now_s
        )

    def fetch(self) -> Token:
        self.asked += 1
        if self.is_away:
            raise Transient("away")
        begun_s = self.wall_s or self.now_s
        return Token(str(self.asked), begun_s, begun_s + LIFE_S)


def test_a_token_serves_four_fifths_of_its_life() -> None:
    provider = Provider()
    assert provider.tokens.current().text == "1"
    provider.now_s += 0.79 * LIFE_S
    assert provider.tokens.current().text == "1"
    provider.now_s += 0.02 * LIFE_S
    assert provider.tokens.current().text == "2"


def test_while_the_provider_is_away_the_old_token_serves_until_it_ends() -> None:
    provider = Provider()
    provider.tokens.current()
    provider.is_away = True
    provider.now_s += 0.89 * LIFE_S
    assert provider.tokens.current().text == "1"
    provider.now_s += 0.02 * LIFE_S  # it might end on its way
    with pytest.raises(Transient, match="away"):
        provider.tokens.current()


def test_a_provider_that_fails_is_asked_after_pauses_that_grow() -> None:
    provider = Provider()
    provider.is_away = True
    for _ in range(10 * 60):  # ten connections a second want a token, for a minute
        with pytest.raises(Transient):
            provider.tokens.current()
        provider.now_s += 0.1
    assert provider.asked == 7  # after 0, 1, 3, 7, 15, 30, 45 s
    provider.is_away = False
    provider.now_s += LONGEST_PAUSE_S
    away = provider.tokens.away
    assert away is not None
    assert away[0] == pytest.approx(75.0)
    assert away[1] == "away"
    assert provider.tokens.current().text == "8"
    assert provider.tokens.away is None


def test_a_provider_that_hangs_holds_up_nobody_while_the_old_token_serves() -> None:
    go = threading.Event()
    answers = iter(["old", "new"])
    now_s = 0.0

    def fetch() -> Token:
        text = next(answers)
        if text == "new":
            go.wait()
        return Token(text, now_s, now_s + LIFE_S)

    tokens = BrokerTokens(fetch, lambda: now_s, lambda: now_s)
    assert tokens.current().text == "old"
    now_s = 0.85 * LIFE_S
    assert tokens.current().text == "old"
    go.set()
    assert tokens.current().text == "new"


def test_a_clock_that_is_set_back_makes_no_token_last_longer_and_no_pause() -> None:
    provider = Provider()
    provider.tokens.current()
    provider.wall_s = 100.0
    provider.now_s += 0.95 * LIFE_S
    assert provider.tokens.current().text == "2"
    other = Provider()
    other.is_away = True
    with pytest.raises(Transient):
        other.tokens.current()
    other.wall_s, other.is_away = 100.0, False
    other.now_s += 1.0
    assert other.tokens.current().text == "2"


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
def test_what_a_library_raises_is_told_like_any_other_failure(kind: type[BaseException]) -> None:
    def fetch() -> Token:
        raise kind("of a library")

    tokens = BrokerTokens(fetch, lambda: 0.0, lambda: 0.0)
    with pytest.raises(Transient, match="of a library"):
        tokens.current()
    ended = BrokerTokens(lambda: Token("t", -10.0, -5.0), lambda: 0.0, lambda: 0.0)
    with pytest.raises(Transient, match="ended already"):
        ended.current()


def test_without_a_thread_the_provider_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    provider = Provider()
    with monkeypatch.context() as few:
        few.setattr("threading.Thread.start", start)
        with pytest.raises(Transient, match="new thread"):
            provider.tokens.current()
    provider.now_s += 1.0
    assert provider.tokens.current().text == "1"


def test_a_token_that_ended_on_its_way_was_not_refused() -> None:
    now_s, texts = 0.0, iter("abc")

    def fetch() -> Token:
        return Token(next(texts), now_s, now_s + LIFE_S)

    tokens = BrokerTokens(fetch, lambda: now_s, lambda: now_s)
    first = tokens.current()
    now_s = 0.95 * LIFE_S
    assert not tokens.forget(first)
    second = tokens.current()
    assert not tokens.forget(first)
    assert tokens.current() == second
    # Two connections showed it.
    assert tokens.forget(second)
    third = tokens.current()
    assert tokens.forget(second)
    assert tokens.current() == third


def test_threads_that_want_a_token_at_once_ask_once() -> None:
    begun, go = threading.Event(), threading.Event()
    asked: list[int] = []

    def fetch() -> Token:
        asked.append(1)
        begun.set()
        go.wait()
        return Token("t", 0.0, LIFE_S)

    tokens = BrokerTokens(fetch, lambda: 0.0, lambda: 0.0)
    ask: Callable[[], Token] = tokens.current
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(ask) for _ in range(4)]
        begun.wait()
        go.set()
        assert {answer.result().text for answer in answers} == {"t"}
    assert len(asked) == 1
