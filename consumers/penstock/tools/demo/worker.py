"""Runs the demo's worker, and asks it how it makes its batches.

Rule: a worker that a signal ended, or that ended with code 0, is started again; one that gives up
by itself ends the demo with its message. The proof does not use the worker's counters.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.adapters.http.running_worker import page_of
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.process.children import START_S, Child, last_words, running
from penstock.process.process_end import END_WITH_PARENT
from penstock.tools.demo.services import DemoPlace

# A new worker is started this long after a kill. If it joined sooner, the dead member would still
# be in the group, so the new worker would get only half of the partitions and would have to join
# once more.
RESTART_PAUSE_S = 2.0
# A worker must be ready within this time. On the embedded broker, joining takes 3 s, and 8 s more
# if a dead member must be waited for.
READY_S = START_S + 15.0
READY_POLL_S = 0.1
# The view waits no longer than this for a page that does not answer.
ANSWER_S = 1.0

ROWS_IN_ALL = "rows_in_all"
_SAMPLE = re.compile(
    rb'^penstock_(?:batches_total\{reason="(\w+)"\}|batch_rows_sum) (\S+)$', re.MULTILINE
)


class DemoWorker:
    """Runs one worker at a time. `look` brings `ready` and `batches` up to date."""

    def __init__(self, place: DemoPlace, config_path: Path | None) -> None:
        self.pid: int | None = None
        self.ready = False
        self.restarts = 0
        self._place = place
        self._arguments = ["run", *(["--config", str(config_path)] if config_path else [])]
        self._log = place.folder / "worker.log"
        self._child: Child | None = None
        self._stopping = False
        self._earlier: Counter[str] = Counter()
        self._latest: Counter[str] = Counter()

    @property
    def batches(self) -> Counter[str]:
        """For each reason to close a batch: how many batches all workers so far have closed for it.
        The entry `ROWS_IN_ALL` has the number of rows of all batches.
        """
        return self._earlier + self._latest

    async def keep_running(self) -> None:
        """Returns after `stop`. Raises `Fatal` if the worker gives up."""
        while not self._stopping:
            async with self._started() as child:
                code = await child.wait()
            self.pid, self.ready = None, False
            if code > 0:
                raise Fatal(f"the worker gave up: {last_words(self._log)}", exit_code=code)
            if not self._stopping:
                self.restarts += 1
                self._earlier, self._latest = self.batches, Counter()
                await asyncio.sleep(RESTART_PAUSE_S)

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Child]:
        async with running(
            "the worker",
            "penstock",
            self._log,
            arguments=[END_WITH_PARENT, *self._arguments],
            environ=self._place.environ,
        ) as self._child:
            self.pid = self._child.pid
            yield self._child

    async def until_ready(self) -> None:
        """Returns when the worker has partitions and the model answers."""
        await until("the worker", self._log, self._is_ready)

    async def _is_ready(self) -> bool:
        return await self._get("/readyz") is not None

    async def look(self) -> None:
        """Ask the worker for its state. If it does not answer, the counts stay as they are."""
        self.ready = await self._is_ready()
        if self.ready and (page := await self._get("/metrics")) is not None:
            self._latest = batches(page)

    def stop(self) -> None:
        """Ask the worker to drain. `keep_running` returns when the worker has ended."""
        self._stopping = True
        if self._child is not None:
            self._child.ask_to_end()

    async def _get(self, path: str) -> bytes | None:
        """The body of the page; None unless the status is 200."""
        return await page_of(self._place.cfg.http, path, ANSWER_S)


async def until(worker: str, log: Path, is_ready: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `is_ready` returns True. Raises `Fatal` if that takes longer than `READY_S`.
    `worker`: its name in the error; `log`: its log file.
    """
    try:
        async with asyncio.timeout(READY_S):
            while not await is_ready():  # noqa: ASYNC110 (another process has no event)
                await asyncio.sleep(READY_POLL_S)
    except TimeoutError:
        raise Fatal(
            f"{worker} is not ready after {READY_S:.0f} s; on a busy machine, try again. Its last "
            f"words: {last_words(log)}",
            exit_code=EXIT_UNREACHABLE,
        ) from None


def batches(page: bytes) -> Counter[str]:
    """From the worker's metrics: how many batches were closed for each reason, and how many rows
    all batches had.
    """
    return Counter(
        {
            reason.decode() or ROWS_IN_ALL: int(float(number))
            for reason, number in _SAMPLE.findall(page)
        }
    )
