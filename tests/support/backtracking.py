"""How many steps a backtracking engine takes for a regular expression: the engine of `re`, written
out, so that steps are counted instead of seconds.

Rule: it follows the parse tree of `re` itself and tries what `re` tries in the same order, without
the short cuts that `re` may take; so it never counts fewer steps than the kind of growth needs.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_STEPS = 15_000
SUSPECT = 6.0  # between linear and quadratic
_WORD = "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CATEGORIES = {
    sre.CATEGORY_DIGIT: "0123456789",
    sre.CATEGORY_SPACE: " \t\n\r\f\v",
    sre.CATEGORY_WORD: _WORD,
}
_NOT_CATEGORIES = {
    sre.CATEGORY_NOT_DIGIT: "0123456789",
    sre.CATEGORY_NOT_SPACE: " \t\n\r\f\v",
    sre.CATEGORY_NOT_WORD: _WORD,
}
# As numbers, since each test of a flag of `re` makes a new one.
_IGNORECASE, _MULTILINE, _DOTALL = map(int, (re.IGNORECASE, re.MULTILINE, re.DOTALL))
_ONE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
# In hardly any pattern, so hardly ever part of a match.
ODD = "\x02"

Then = Callable[[int], int | None]


class TooManySteps(Exception):
    pass


class Engine:
    """One pattern against one text."""

    def __init__(self, pattern: re.Pattern[Any], text: str) -> None:
        self.steps = 0
        self._text = text
        self._flags = pattern.flags
        self._tree = tree(pattern).data

    def match(self, at: int, *, full: bool) -> int | None:
        end = len(self._text)
        return self._all(self._tree, 0, at, lambda p: p if p == end or not full else None)

    def scan(self) -> None:
        """As `findall` does: one match after the other, each looked for from every place."""
        at = 0
        while at <= len(self._text):
            end = self.match(at, full=False)
            at = at + 1 if end is None or end == at else end

    def _all(self, items: list[Any], index: int, at: int, then: Then) -> int | None:
        if index == len(items):
            return then(at)
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManySteps
        op, value = items[index]

        def rest(p: int) -> int | None:
            return self._all(items, index + 1, p, then)

        if op in _ONE:
            return rest(at + 1) if self._one(op, value, at) else None
        if op is sre.AT:
            return rest(at) if self._at(value, at) else None
        if op is sre.SUBPATTERN:
            return self._all(value[-1].data, 0, at, rest)
        if op is sre.ATOMIC_GROUP:
            end = self._alone(value, at)
            return None if end is None else rest(end)
        if op is sre.BRANCH:
            for branch in value[1]:
                if (end := self._all(branch.data, 0, at, rest)) is not None:
                    return end
            return None
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            start = at if value[0] > 0 else at - value[1].getwidth()[0]
            holds = start >= 0 and self._alone(value[1], start) is not None
            return rest(at) if holds is (op is sre.ASSERT) else None
        assert op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT), op
        low, high, body = value
        return self._repeat(op, low, high, body, at, rest)

    def _repeat(self, op: Any, low: int, high: Any, body: Any, at: int, rest: Then) -> int | None:
        most = len(self._text) + 1 if high is sre.MAXREPEAT else high
        if op is sre.POSSESSIVE_REPEAT:
            count = 0
            while count < most and (end := self._alone(body, at)) is not None:
                count += 1
                if end == at:
                    break
                at = end
            return rest(at) if count >= min(low, most) else None
        if op is sre.MAX_REPEAT and len(body) == 1 and body[0][0] in _ONE:
            return self._greedy_one(low, most, body[0], at, rest)
        return self._greedy(op is sre.MAX_REPEAT, low, most, body, 0, at, rest)

    def _greedy_one(self, low: int, most: int, body: Any, at: int, rest: Then) -> int | None:
        """As below, of single characters."""
        end = at
        while end - at < most and self._one(body[0], body[1], end):
            self.steps += 1
            end += 1
        for stop in range(end, at + low - 1, -1):
            if (found := rest(stop)) is not None:
                return found
        return None

    def _greedy(
        self, greedy: bool, low: int, most: int, body: Any, count: int, at: int, rest: Then
    ) -> int | None:
        def more() -> int | None:
            if count >= most:
                return None
            return self._all(
                body.data,
                0,
                at,
                lambda p: (
                    self._greedy(greedy, low, most, body, count + 1, p, rest)
                    if p > at or count < low
                    else None
                ),
            )

        if count < low:
            return more()
        for way in (more, lambda: rest(at)) if greedy else (lambda: rest(at), more):
            if (end := way()) is not None:
                return end
        return None

    def _alone(self, body: Any, at: int) -> int | None:
        """Its first match; the others are not asked for again."""
        return self._all(body.data, 0, at, lambda p: p)

    def _one(self, op: Any, value: Any, at: int) -> bool:
        if at >= len(self._text):
            return False
        char = self._text[at]
        if self._flags & _IGNORECASE:
            return any(is_one(op, value, c, self._flags) for c in (char.lower(), char.upper()))
        return is_one(op, value, char, self._flags)

    def _at(self, value: Any, at: int) -> bool:
        text = self._text
        if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            lines = value is sre.AT_BEGINNING and self._flags & _MULTILINE
            return at == 0 or bool(lines and text[at - 1] == "\n")
        if value in (sre.AT_END, sre.AT_END_STRING):
            if at == len(text):
                return True
            lines = self._flags & _MULTILINE
            last = at == len(text) - 1
            return value is sre.AT_END and text[at] == "\n" and bool(last or lines)
        before = at > 0 and text[at - 1] in _WORD
        after = at < len(text) and text[at] in _WORD
        return (before != after) is (value is sre.AT_BOUNDARY)


def is_one(op: Any, value: Any, char: str, flags: int) -> bool:
    if op is sre.LITERAL:
        return bool(ord(char) == value)
    if op is sre.NOT_LITERAL:
        return bool(ord(char) != value)
    if op is sre.ANY:
        return char != "\n" or bool(flags & _DOTALL)
    found, negated = False, False
    for kind, what in value:
        if kind is sre.NEGATE:
            negated = True
        elif kind is sre.LITERAL:
            found |= ord(char) == what
        elif kind is sre.RANGE:
            found |= what[0] <= ord(char) <= what[1]
        else:
            found |= char in _CATEGORIES.get(what, "")
            found |= what in _NOT_CATEGORIES and char not in _NOT_CATEGORIES[what]
    return found is not negated


@cache
def tree(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def chars_of(pattern: re.Pattern[Any]) -> list[str]:
    """One of each kind that the pattern tells apart."""
    kinds = [item for item in _items(tree(pattern)) if item[0] in (sre.LITERAL, sre.IN, sre.ANY)]
    named = {chr(what) for op, value in kinds for what in _named(op, value)}
    by_kinds: dict[tuple[bool, ...], str] = {}
    for char in [*"1a \n", *sorted(named), ODD]:
        key = tuple(is_one(op, value, char, pattern.flags) for op, value in kinds)
        by_kinds.setdefault(key, char)
    return list(by_kinds.values())


def _named(op: Any, value: Any) -> Iterator[int]:
    if op is sre.LITERAL:
        yield value
    elif op is sre.IN:
        for kind, what in value:
            if kind is sre.LITERAL:
                yield what
            elif kind is sre.RANGE:
                yield what[0]


def _items(sequence: Any) -> Iterator[Any]:
    for op, value in sequence:
        yield op, value
        for inner in _inner(op, value):
            yield from _items(inner)


def _inner(op: Any, value: Any) -> list[Any]:
    if op is sre.BRANCH:
        return list(value[1])
    if op is sre.ATOMIC_GROUP:
        return [value]
    if op in (sre.SUBPATTERN, sre.ASSERT, sre.ASSERT_NOT):
        return [value[-1]]
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[2]]
    return []


def sample(sequence: Any, flags: int = 0) -> str:
    """A text that it matches, if its assertions allow."""
    message = ""
    for op, value in sequence:
        if op is sre.LITERAL:
            message += chr(value)
        elif op in (sre.NOT_LITERAL, sre.ANY, sre.IN):
            named = (chr(what) for what in _named(op, value))
            message += next(
                (c for c in [*"a1- :", *named, ODD] if is_one(op, value, c, flags)), ODD
            )
        elif op is sre.BRANCH:
            message += sample(value[1][0], flags)
        elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            message += sample(_inner(op, value)[0], flags)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            message += sample(value[2], flags) * max(1, min(value[0], 40))
    return message


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Beginnings, what is repeated after them, and ends that may spoil the match."""
    parsed = tree(pattern)
    chars = chars_of(pattern)[:9]
    bodies = {
        sample(value[2])
        for op, value in _items(parsed)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
    }
    few = chars[:3]
    pumps = {*chars, *(a + b for a in few for b in few if a != b), *bodies} - {""}
    items = list(parsed)
    starts = {"", *(sample(items[:count]) for count in range(1, min(len(items), 4)))}
    for start in sorted(starts):
        for pump in sorted(pumps):
            for end in ("", ODD):
                yield start, pump, end


def growth(pattern: re.Pattern[Any], ways: set[str]) -> tuple[float, str]:
    """How many times the steps of a text are those of one four times as long, at worst, and of
    which text: 4 is linear, 16 is quadratic. `ways`: scan, match or fullmatch.
    """
    found = (0.0, "")
    for start, pump, end in hostile(pattern):
        for way in sorted(ways):
            # A short text may still be within a bound of the pattern, as `{0,40}`.
            for pumps in (16, 64):
                times = _growth(pattern, way, (start, pump, end), -(-pumps // len(pump)))
                if times < SUSPECT:
                    break
            if times > found[0]:
                found = (times, f"{way} of {start!r}, many {pump!r}, {end!r}")
    return found


def _growth(pattern: re.Pattern[Any], way: str, parts: tuple[str, str, str], pumps: int) -> float:
    start, pump, end = parts

    def steps(count: int) -> int:  # an odd one and an even one: quotes come in pairs
        texts = (start + pump * (count + more) + end for more in (0, 1))
        return max(_steps(pattern, text, way) for text in texts)

    many = steps(4 * pumps)
    return math.inf if many > MOST_STEPS else many / max(steps(pumps), 40)


def _steps(pattern: re.Pattern[Any], text: str, way: str) -> int:
    engine = Engine(pattern, text)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(MOST_STEPS)
    try:
        if way == "scan":
            engine.scan()
        else:
            engine.match(0, full=way == "fullmatch")
    except TooManySteps:
        pass
    finally:
        sys.setrecursionlimit(before)
    return engine.steps
