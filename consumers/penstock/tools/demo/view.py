"""Shows the demo's progress: on a terminal as a live table, elsewhere as a line every few seconds.

Rule: the view reads `DemoProgress` and `DemoWorker`, and changes neither.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.terminal_text import tell
from penstock.tools.demo.progress import LATENCIES_OVER_S, DemoProgress, together
from penstock.tools.demo.worker import ROWS_IN_ALL, DemoWorker

# The table is drawn this often, which is often enough to look alive and seldom enough to look calm.
REFRESH_S = 0.25
LINE_EVERY_S = 2.0
RATE_OVER_S = 2.0
BAR_COLUMNS = 30
# The view has this many lines besides those of the streams. They are the place and the heading
# above the table, the table's header and totals, three lines below the table, three blank lines,
# and the prompt.
OTHER_LINES = 11
LATENCY = f"latency: reference to its last answer, in the last {LATENCIES_OVER_S:.0f} s"


class View:
    """Shows the progress. The view's clock starts when the view is made. `show` runs until it is
    cancelled. `phase`: a text that says what the demo does after the streams have ended.
    """

    def __init__(
        self, console: Console, progress: DemoProgress, worker: DemoWorker, *, seconds: float
    ) -> None:
        self.phase = ""
        self._console = console
        self._progress = progress
        self._worker = worker
        self._seconds = seconds
        self._started_s = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self._started_s, 0)])

    async def show(self) -> None:
        if self._console.is_terminal:
            await self._show_table()
        else:
            await self._show_lines()

    async def _show_table(self) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    await self._look()
                    live.update(self.table(), refresh=True)
                    await asyncio.sleep(REFRESH_S)
            finally:
                self.phase = "done"
                live.update(self.table(), refresh=True)

    async def _show_lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            await self._look()
            tell(self._console, self.line())

    async def _look(self) -> None:
        await self._worker.look()
        now_s = time.monotonic()
        self._seen.append((now_s, self._progress.rows))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - RATE_OVER_S:
            self._seen.popleft()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def rows_per_s(self) -> float:
        (since_s, before), (now_s, now) = self._seen[0], self._seen[-1]
        return (now - before) / (now_s - since_s) if now_s > since_s else 0.0

    def line(self) -> str:
        progress = self._progress
        latencies = together(progress.latencies_ms())
        return ", ".join(
            (
                f"{self.elapsed_s:3.0f} s: {progress.rows:,} rows",
                f"{self.rows_per_s:,.0f} rows/s",
                f"{progress.waiting} objects waiting",
                f"p50 {percentile(latencies, 50)}",
                f"p99 {percentile(latencies, 99)}",
                self._batches(),
                self._worker_state(),
            )
        )

    def table(self) -> RenderableType:
        return Group(
            self._heading(),
            "",
            self._streams(),
            "",
            self._text((f"{self.rows_per_s:,.0f}", "bold"), f" rows/s; {self._batches()}"),
            self._text((self._worker_state(), "" if self._worker.ready else "yellow")),
            self._text((LATENCY + self._left_out(), "dim")),
        )

    @staticmethod
    def _text(*parts: str | tuple[str, str]) -> Text:
        """A text of one line, cut to the terminal's width. Without the cut it could take two lines,
        for which the view has no room.
        """
        return Text.assemble(" ", *parts, no_wrap=True, overflow="ellipsis")

    def _heading(self) -> RenderableType:
        heading = Table.grid(padding=(0, 3))
        heading.add_row(
            Text(" penstock demo", "bold"),
            ProgressBar(
                self._seconds,
                min(self.elapsed_s, self._seconds),
                width=BAR_COLUMNS,
                complete_style="cyan",
                finished_style="green",
            ),
            Text(self.phase or f"{self.elapsed_s:.0f} s of {self._seconds:g} s", "dim"),
        )
        return heading

    def _streams(self) -> Table:
        streams, progress = self._progress.streams, self._progress
        table = Table(box=None, padding=(0, 1), header_style="dim", footer_style="bold")
        latencies = progress.latencies_ms()
        everything = together(latencies)
        hidden = len(streams) - max(1, self._console.height - OTHER_LINES)
        totals = (
            f"all {len(streams)} streams",
            f"{hidden} not shown" if hidden > 0 else "",
            _short(progress.objects),
            _short(progress.rows),
            _short(progress.waiting),
            percentile(everything, 50),
            percentile(everything, 99),
        )
        names = ("stream", "objects", "answered", "rows", "waiting", "p50", "p99")
        table.show_footer = True
        for column, (name, total) in enumerate(zip(names, totals, strict=True)):
            table.add_column(name, total, justify="right" if column > 1 else "left", no_wrap=True)
        shown = len(streams) - max(0, hidden)
        for stream, own in zip(streams[:shown], latencies[:shown], strict=True):
            table.add_row(
                stream.name,
                Text(stream.form, "dim"),
                _short(stream.objects),
                _short(stream.rows),
                Text(_short(stream.waiting), "yellow" if stream.waiting > 1 else "dim"),
                percentile(own, 50),
                percentile(own, 99),
            )
        return table

    def _batches(self) -> str:
        closed = self._worker.batches
        rows = closed.pop(ROWS_IN_ALL, 0)
        count = closed.total()
        if not count:
            return "no batch yet"
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in closed.most_common())
        return f"{count:,} batches of {rows / count:.0f} rows, closed by {reasons}"

    def _left_out(self) -> str:
        count = self._progress.left_out
        return f"; {count:,} beats left out: too much for this machine" if count else ""

    def _worker_state(self) -> str:
        worker = self._worker
        if worker.pid is None:
            return "the worker is gone; the next one starts in a moment"
        name = f"worker {worker.pid}"
        if not worker.ready:
            waits = (
                "; the partitions of the one before are free after 9 s" if worker.restarts else ""
            )
            return f"{name} is not ready{waits}"
        if worker.restarts:
            name += f" (number {worker.restarts + 1})"
        return f"{name}; end it any time: kill -9 {worker.pid}" if not self.phase else name


def _short(number: int) -> str:
    """A number as a text: `2,448,000`, or `146.9 M` if the full number would not fit into 80
    columns.
    """
    return f"{number:,}" if number < 10_000_000 else f"{number / 1e6:,.1f} M"


def percentile(latencies_ms: Sequence[float], rank: int) -> str:
    """A percentile of ascending values, for people: `17 ms`, `9.1 s`, or `-` without values."""
    if not latencies_ms:
        return "-"
    ms = latencies_ms[min(len(latencies_ms) * rank // 100, len(latencies_ms) - 1)]
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
