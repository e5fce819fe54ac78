"""What a person sees while work goes on.

Rule: it goes to standard error, and only to a terminal or a notebook. Owner: the call, or command.
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


class Predicting:
    """A bar of objects, and the number of rows."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None, rows=0)

    def found(self, objects: int) -> None:
        """How many objects were listed so far."""
        self._bar.update(self._task, total=objects)

    def done(self, rows: int, objects: int) -> None:
        self._bar.update(self._task, completed=objects, rows=rows)


def bar(*columns: ProgressColumn, shown: bool = True) -> Progress:
    console = Console(stderr=True)
    is_seen = shown and (console.is_terminal or console.is_jupyter)
    return Progress(*columns, console=console, transient=True, disable=not is_seen)


@contextmanager
def predicting(*, shown: bool = True) -> Iterator[Predicting]:
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
        yield Predicting(progress)
