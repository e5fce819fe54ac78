"""The progress bars of library calls and commands.

Rule: a bar goes to standard error, and only if that is a terminal, or in a notebook. Owner: the
call or the command.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class PredictBar:
    """Shows how many objects are answered, and how many rows."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None, rows=0)

    def found(self, objects: int) -> None:
        """Show that this many objects were listed so far."""
        self._bar.update(self._task, total=objects)

    def done(self, rows: int, objects: int) -> None:
        """Show that this many rows and objects were answered so far."""
        self._bar.update(self._task, completed=objects, rows=rows)


def bar(*columns: ProgressColumn, shown: bool = True) -> Progress:
    console = Console(stderr=True)
    is_seen = shown and (console.is_terminal or console.is_jupyter)
    return Progress(*columns, console=console, transient=True, disable=not is_seen)


@contextmanager
def predict_bar(*, shown: bool = True) -> Iterator[PredictBar]:
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
