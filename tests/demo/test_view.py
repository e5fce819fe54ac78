"""How the view puts numbers, and that it fits the terminal."""

import io
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from penstock.tools.demo.progress import DemoProgress, DemoStream
from penstock.tools.demo.streams import forms, stream_name
from penstock.tools.demo.view import View, percentile
from penstock.tools.demo.worker import ROWS_IN_ALL


@pytest.mark.parametrize(
    ("latencies_ms", "text"),
    [([], "-"), ([17.2], "17 ms"), ([0.0, 999.0], "999 ms"), ([9_130.0], "9.1 s")],
)
def test_latencies_are_shown_in_the_unit_that_fits(latencies_ms: list[float], text: str) -> None:
    assert percentile(latencies_ms, 50) == text


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(ms) for ms in range(100)]
    assert [percentile(values, rank) for rank in (0, 50, 99, 100)] == [
        "0 ms", "50 ms", "99 ms", "99 ms",
    ]  # fmt: skip


@dataclass
class Working:
    """A worker as the view sees it, late in a long demo."""

    pid: int | None = 4_194_304
    ready: bool = True
    restarts: int = 12
    batches: Counter[str] = field(
        default_factory=lambda: Counter(
            {"deadline": 1_234_567, "rows": 123_456, "idle": 12_345, ROWS_IN_ALL: 99_999_999}
        )
    )


@pytest.mark.parametrize("phase", ["", "waiting for the last answers", "done"])
@pytest.mark.parametrize("streams", [1, 12, 60, 1_000])
@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24)])
def test_the_table_fits_the_terminal(width: int, height: int, streams: int, phase: str) -> None:
    progress = DemoProgress(
        [DemoStream(stream_name(index), forms(index)) for index in range(streams)]
    )
    for index, stream in enumerate(progress.streams):
        progress.sent(index, "waits", 0.0, 60)
        stream.objects, stream.rows, stream.sent = 72_000, 2_448_000, 72_001
        stream.left_out = 100_000
        stream._latencies.append((time.time(), 13_400.0))
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    view = View(console, progress, Working(), seconds=3_600)  # type: ignore[arg-type]
    view.phase = phase
    console.print(view.table())
    lines = out.getvalue().splitlines()
    # One line is above it, the place; one below, the prompt.
    assert len(lines) <= height - 2
    assert max(map(len, lines)) <= width
    text = out.getvalue()
    first = next(line for line in lines if "site-1/cam-1" in line)
    for shown in ("72,000", "2,448,000"):
        assert shown in first, "no number is cut"
    assert f"all {streams} streams" in text
    above = text[: text.index(" rows/s")]
    assert "…" not in above
    assert "p99" in above
    assert "kill -9 4194304" in text or phase
    if streams >= height:
        assert "not shown" in text
