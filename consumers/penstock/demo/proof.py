"""The end of the demo: what the topics prove.

Rule: the verdict is the judge's, from the topics alone, read while they grew. Two checks are added:
the topics have the objects and rows that the producers counted, and no repeats unless a worker was
killed. Owner: the demo.
"""

from rich.console import Console
from rich.markup import escape

from penstock import config
from penstock.demo.progress import Progress
from penstock.errors import EXIT_CHECK_FAILED, Fatal
from penstock.terminal_text import tell
from penstock.verify.findings import Report, render


def prove(
    cfg: config.Config, report: Report, progress: Progress, restarts: int, console: Console
) -> None:
    """Print the verdict. Raises `Fatal` (exit 1) if a promise was broken."""
    faults = broken(report, progress, restarts)
    if faults:
        console.print(render(report))
        raise Fatal(f"the proof failed: {'; '.join(faults)}", exit_code=EXIT_CHECK_FAILED)
    if progress.left_out:
        missed = f"  {progress.left_out:,} objects were never announced"
        tell(console, f"{missed}: this machine is at its limit.", "yellow")
    topics = f"{cfg.kafka.input_topic}, {cfg.output.topic} and {cfg.output.dead_letter_topic}"
    tell(console, f"[bold green]✔ {escape(report.sentence())}[/]")
    tell(console, f"  Proved from the topics {escape(topics)} alone{_takeovers(restarts)}.", "dim")


def broken(report: Report, progress: Progress, restarts: int) -> list[str]:
    """What is wrong, in words; empty if all is well."""
    sent = sum(stream.sent for stream in progress.streams)
    checks = {
        "the topics break a promise": report.ok,
        f"{sent:,} objects were announced, the topics know {report.objects:,}": (
            report.objects == sent
        ),
        f"{progress.rows_sent:,} rows were written, {report.rows:,} were answered": (
            report.rows == progress.rows_sent
        ),
        f"{report.rejected:,} good rows were rejected": report.rejected == 0,
        f"{report.duplicates:,} rows were answered twice, by one and the same worker": (
            restarts > 0 or report.duplicates == 0
        ),
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def _takeovers(restarts: int) -> str:
    if not restarts:
        return ""
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"; the worker was ended {times} and the next one took over"
