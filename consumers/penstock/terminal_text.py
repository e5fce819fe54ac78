"""What a terminal shows: texts, times, tables, progress bars.

Rule: characters that would control a terminal are printed as escapes (`escaped`). Light to import,
because every log line passes through it.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table
    from rich.text import Text

    from penstock.core.comparing.comparison import AgreementShare

# `cut` leaves at most this many characters of a text. An embedding, for example, has ten thousand.
MOST_CHARS = 120
# The pattern of characters that are not printed as they are: controls of a terminal (C0 and C1,
# except line feed and tab), characters that turn the direction of writing, and characters that
# cannot be encoded.
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """The text with escapes for all characters that would control a terminal. Line feeds and tabs
    stay.
    """
    return _CONTROLS.sub(lambda sign: ascii(sign[0])[1:-1], text)


def escaped_json(document: bytes | str) -> str:
    """JSON with escapes of JSON for all characters that would control a terminal. A carriage
    return, which can only stand between two tokens, becomes a space.
    """
    text = document if isinstance(document, str) else document.decode(errors="replace")
    text = text.replace("\r", " ")
    return _CONTROLS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def visible(text: str) -> "Text":
    """The text on one line, with escapes for characters that do not print."""
    from rich.text import Text  # noqa: PLC0415

    return Text("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text).strip())


def cut(text: str) -> "Text":
    return visible(text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…")


def tell(console: "Console", text: str, style: str | None = None) -> None:
    """Print a sentence. The terminal may wrap it, and no part of it gets another colour."""
    console.print(text, style=style, highlight=False, soft_wrap=True)


def utc(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return str(epoch_ms)


def clock_time(epoch_ms: int) -> str:
    """The time of day in UTC, for lines that are printed while things happen."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def agreement(share: "AgreementShare") -> str:
    """A text with the share of rows that agree, and its 95 % interval."""
    if not share.rows:
        return "nothing is known"
    low, high = (f"{100 * bound:.3f}" for bound in share.interval())
    return f"{100 * share.value:.3f} % ({low} to {high} %)"


def worst_streams(streams: Iterable[tuple[str, "AgreementShare"]]) -> "Table":
    rows = ((name, f"{share.rows:,}", agreement(share)) for name, share in streams)
    return folded(("worst streams", "rows", "agreement (95 %)"), rows)


def folded(names: Iterable[str], rows: Iterable[Iterable[str]]) -> "Table":
    """A table that folds long texts over several lines."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(cut, row))
    return table


class PredictBar:
    """A progress bar that shows how many objects, and how many rows, are answered."""

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None, rows=0)

    def found(self, objects: int) -> None:
        """Show that this many objects were listed so far."""
        self._bar.update(self._task, total=objects)

    def done(self, rows: int, objects: int) -> None:
        """Show that this many rows and objects were answered so far."""
        self._bar.update(self._task, completed=objects, rows=rows)


def bar(*columns: "ProgressColumn", shown: bool = True) -> "Progress":
    """A progress bar. It is shown in a notebook, or on standard error if this is a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    is_seen = shown and (console.is_terminal or console.is_jupyter)
    return Progress(*columns, console=console, transient=True, disable=not is_seen)


@contextmanager
def predict_bar(*, shown: bool = True) -> Iterator[PredictBar]:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(" of "),
        TextColumn("objects, {task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with bar(*columns, shown=shown) as progress:
        yield PredictBar(progress)
