"""One line a file while the tests run: how far, how many of each outcome, how long.

Rule: `scripts/test` loads it (`-p tests.support.progress`); pytest tells at the end what failed.
Where several processes run tests, this one, which starts them, tells of all.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.lanes import file_of

# In a log, so that a failure's line has room for its message.
LOG_COLUMNS = 200
OUTCOMES = ("passed", "skipped", "failed", "error")
Status = tuple[str, str, str]


class Progress:
    """Tells of each file when its last test has ended."""

    def __init__(self, terminal: TerminalReporter) -> None:
        self._terminal = terminal
        self._chosen = 0
        self._ended = 0
        self._left: Counter[str] = Counter()
        self._began_s: dict[str, float] = {}
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Each process has collected the same; one that replaces another does so later."""
        if not self._chosen:
            self._expect(ids)

    def _expect(self, nodeids: Iterable[str]) -> None:
        self._left.update(map(file_of, nodeids))
        self._chosen = self._left.total()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began_s.setdefault(file_of(nodeid), time.monotonic())

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, Status, Status]:
        """Without its letter, which the terminal prints as the test ends."""
        category, _, word = yield
        self._outcomes[file_of(report.nodeid)][category] += 1
        return category, "", word

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        file = file_of(nodeid)
        self._ended += 1
        self._left[file] -= 1
        if not self._left[file]:
            self._tell(file)

    def pytest_sessionfinish(self) -> None:
        """Of files in whose midst the run was ended."""
        for file in tuple(self._began_s):
            self._tell(file)

    def _tell(self, file: str) -> None:
        lasted_s = time.monotonic() - self._began_s.pop(file)
        outcomes = self._outcomes[file]
        message = ", ".join(f"{outcomes[name]} {name}" for name in OUTCOMES if outcomes[name])
        far = 100 * self._ended // self._chosen
        self._terminal.write_line(f"[{far:3d}%] {file}: {message}, {lasted_s:.1f} s")


@pytest.hookimpl(trylast=True)  # the terminal is there
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(terminal, TerminalReporter):  # a process that another one started
        return
    terminal.showfspath = False
    if not sys.stdout.isatty():
        config.get_terminal_writer().fullwidth = LOG_COLUMNS
    config.pluginmanager.register(Progress(terminal))
