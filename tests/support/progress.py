"""One line a file while the tests run: how far, how many of each outcome, how long.

Rule: `scripts/test` loads it (`-p tests.support.progress`); pytest tells at the end what failed.
"""

import sys
import time
from collections import Counter
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

# In a log, so that a failure's line has room for its message.
LOG_COLUMNS = 200
OUTCOMES = ("passed", "skipped", "failed", "error")
Status = tuple[str, str, str]


class Progress:
    """Tells of each file when the first test of the next one begins."""

    def __init__(self, terminal: TerminalReporter) -> None:
        self._terminal = terminal
        self._chosen = 0
        self._file = ""
        self._began_s = 0.0
        self._told: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._chosen = len(session.items)

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        if location[0] != self._file:
            self._tell()
            self._file, self._began_s = location[0], time.monotonic()

    def pytest_sessionfinish(self) -> None:
        self._tell()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """Without its letter, which the terminal prints as the test ends."""
        category, _, word = yield
        return category, "", word

    def _tell(self) -> None:
        if not self._file:
            return
        counts = Counter({name: len(self._terminal.stats.get(name, ())) for name in OUTCOMES})
        news = counts - self._told
        self._told = counts
        far = 100 * counts.total() // self._chosen
        said = ", ".join(f"{count} {name}" for name, count in news.items())
        lasted_s = time.monotonic() - self._began_s
        self._terminal.write_line(f"[{far:3d}%] {self._file}: {said}, {lasted_s:.1f} s")


@pytest.hookimpl(trylast=True)  # the terminal is there
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(terminal, TerminalReporter)
    terminal.showfspath = False
    if not sys.stdout.isatty():
        config.get_terminal_writer().fullwidth = LOG_COLUMNS
    config.pluginmanager.register(Progress(terminal))
