"""The plot of `bench streams` as SVG: p99 against the number of streams.

Rule: the axis is logarithmic, because an overloaded trial is a hundred times slower than one that
holds; a percentile that is a tick without an answer lies on the upper edge.
"""

import math
from collections.abc import Iterator, Sequence

from consumers.bench.verdict import Trial

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
LOWEST_MS, HIGHEST_MS = 1.0, 10_000.0
TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
POOL, WORST, BOUND = "#1f77b4", "#d62728", "#2ca02c"


def p99_plot(trials: Sequence[Trial], bound_ms: float) -> str:
    return "\n".join(_elements(trials, bound_ms)) + "\n"


def _elements(trials: Sequence[Trial], bound_ms: float) -> Iterator[str]:
    most = max(trial.streams for trial in trials)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield _text(WIDTH / 2, 20, "99th percentile latency (ms) against streams", "middle")
    for ms in TICKS_MS:
        yield _line(ms, "#dddddd")
        yield _text(LEFT - 6, _y(ms) + 4, f"{ms:,}", "end")
    yield _line(bound_ms, BOUND, dashes="6 4")
    for streams in sorted({trial.streams for trial in trials}):
        yield _text(_x(streams, most), HEIGHT - BOTTOM + 18, str(streams), "middle")
    yield from _dots([(trial.streams, trial.worst_stream_p99_ms) for trial in trials], most, WORST)
    yield from _dots([(trial.streams, trial.p99_ms) for trial in trials], most, POOL)
    for offset, (colour, label) in enumerate(
        ((POOL, "all streams"), (WORST, "worst stream"), (BOUND, f"bound, {bound_ms:g} ms"))
    ):
        x = LEFT + 10 + 150 * offset
        yield f'<circle cx="{x}" cy="{HEIGHT - 12}" r="4" fill="{colour}"/>'
        yield _text(x + 8, HEIGHT - 8, label, "start")
    yield "</svg>"


def _dots(points: Sequence[tuple[int, float | None]], most: int, colour: str) -> Iterator[str]:
    for streams, ms in points:
        y = _y(HIGHEST_MS if ms is None else ms)
        yield (
            f'<circle cx="{_x(streams, most):.1f}" cy="{y:.1f}" r="4" '
            f'fill="{colour}" fill-opacity="0.8"/>'
        )


def _line(ms: float, colour: str, dashes: str = "none") -> str:
    y = f"{_y(ms):.1f}"
    return (
        f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" '
        f'stroke="{colour}" stroke-dasharray="{dashes}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _x(streams: int, most: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * streams / (1.05 * most)


def _y(ms: float) -> float:
    inside = min(max(ms, LOWEST_MS), HIGHEST_MS)
    share = math.log(inside / LOWEST_MS) / math.log(HIGHEST_MS / LOWEST_MS)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
