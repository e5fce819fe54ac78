"""The workers: members of one group, each restarted when it ends, as a container would be.

Rule: a worker that ends by itself is counted and named, and restarted as well. Each life has its
own log. No worker outlives this process; frozen ones are killed. Owner: the run.
"""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

from chaos_run.plan import PARTITIONS
from chaos_run.services_under_test import Place
from penstock.process import parent
from penstock.process.children import Child, last_words, running

# As with a container, a restart takes a moment.
RESTART_S = 0.5
LOOK_S = 0.2

_ASSIGNED = re.compile(r"assigned partitions (.*)")
_LIST = re.compile(r"\[([\d, ]*)\]")


class Exit(NamedTuple):
    """A worker ended by itself, with `code`."""

    worker: str
    code: int
    words: str


def last_assignment(said: str) -> frozenset[int]:
    """The partitions that begin, and those that go on, by what a worker said."""
    assignments = _ASSIGNED.findall(said)
    lists = _LIST.findall(assignments[-1]) if assignments else ()
    return frozenset(int(number) for each in lists for number in each.split(","))


class Worker:
    """Runs until `leave`; `busy`: a fault has picked it."""

    def __init__(self, number: int, place: Place, exits: list[Exit], command: str) -> None:
        self.name = f"worker-{number}"
        self.busy = False
        self._place = place
        self._exits = exits
        self._number = number
        self._command = command
        self.life = 0
        self._child: Child | None = None
        self._expected: int | None = None
        self._leaving = False

    async def run(self) -> None:
        while not self._leaving:
            self.life += 1
            self._expected = None
            async with running(
                self.name,
                "penstock",
                self._log,
                arguments=[parent.OPTION, *self._command.split()],
                environ=self._place.environ_of(self.life),
                launcher=self._place.launcher(self.name),
            ) as self._child:
                code = await self._child.wait()
            self._child = None
            if code != self._expected:
                self._exits.append(Exit(self.name, code, last_words(self._log)))
            if not self._leaving:
                await asyncio.sleep(RESTART_S)

    @property
    def _log(self) -> Path:
        return self._place.folder / f"worker-{self._number}.{self.life}.log"

    @property
    def partitions(self) -> frozenset[int]:
        """Its last assignment, as it says itself."""
        return last_assignment(self._log.read_text(errors="replace") if self._log.exists() else "")

    @property
    def is_running(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def kill(self) -> None:
        self._send(signal.SIGKILL, -signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM, 0)

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def lose(self) -> None:
        """As if its host were gone: it dies, and does not start again."""
        self._leaving = True
        self.kill()

    def leave(self) -> None:
        """Drain, and do not start again."""
        self._leaving = True
        self.terminate()

    def _send(self, number: signal.Signals, code: int | None = None) -> None:
        if self._child is not None:
            self._expected = code if code is not None else self._expected
            os.kill(self._child.pid, number)


class Crew:
    """The members of the group, and visitors. `command`: the command that they run. `first`: the
    number of the first one, which names its logs.
    """

    def __init__(
        self, place: Place, tasks: asyncio.TaskGroup, command: str = "run", first: int = 1
    ) -> None:
        self._command = command
        self._first = first
        self.exits: list[Exit] = []
        self._place = place
        self._tasks = tasks
        self._workers: dict[Worker, asyncio.Task[None]] = {}

    def join(self) -> Worker:
        worker = Worker(len(self._workers) + self._first, self._place, self.exits, self._command)
        self._workers[worker] = self._tasks.create_task(worker.run())
        return worker

    def free(self) -> list[Worker]:
        """Workers that run and that no fault has picked."""
        return [worker for worker in self._workers if worker.is_running and not worker.busy]

    async def dismiss(self, *workers: Worker) -> None:
        """Let these workers drain, or all if none is named, and wait for it."""
        leaving = workers or tuple(self._workers)
        for worker in leaving:
            worker.leave()
        await asyncio.wait([self._workers[worker] for worker in leaving])

    async def assigned(self) -> None:
        """Wait until every partition is assigned to one of them."""
        while sum(len(worker.partitions) for worker in self._workers) != PARTITIONS:
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """Kill them without a drain."""
        for task in self._workers.values():
            task.cancel()
