"""The workers of a run: members of one group. Like a container, each worker is restarted when it
ends.

Rule: a worker that ends by itself is also restarted, and is noted as an `Exit`. Each life of a
worker has its own log. No worker outlives this process, not even a frozen one. Owner: the run.
"""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

from chaos_run.plan import PARTITIONS
from chaos_run.services_under_test import Place
from penstock.process.children import Child, last_words, running
from penstock.process.process_end import END_WITH_PARENT

# A container is also restarted only after a moment.
RESTART_S = 0.5
LOOK_S = 0.2

_ASSIGNED = re.compile(r"assigned partitions (.*)")
_LIST = re.compile(r"\[([^\[\]]*/\d+)\]")


class Exit(NamedTuple):
    """A worker ended by itself, with `code`."""

    worker: str
    code: int
    words: str


def last_assignment(words: str) -> frozenset[int]:
    """The partitions of the last assignment in a worker's log: both those that begin and those that
    go on.
    """
    assignments = _ASSIGNED.findall(words)
    lists = _LIST.findall(assignments[-1]) if assignments else ()
    return frozenset(int(name.rpartition("/")[2]) for each in lists for name in each.split(", "))


class Worker:
    """A worker that is restarted until `leave`. `busy`: a fault has picked it."""

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
                arguments=[END_WITH_PARENT, *self._command.split()],
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
        """The worker's last assignment, by its own log."""
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

    async def restarted(self) -> None:
        """Let the worker drain, and wait until its next life has partitions."""
        life = self.life
        self.terminate()
        while self.life == life or not self.partitions:
            await asyncio.sleep(LOOK_S)

    def lose(self) -> None:
        """Kill the worker and do not restart it, as if its host were gone."""
        self._leaving = True
        self.kill()

    def leave(self) -> None:
        """Let the worker drain, and do not restart it."""
        self._leaving = True
        self.terminate()

    def _send(self, number: signal.Signals, code: int | None = None) -> None:
        if self._child is not None:
            self._expected = code if code is not None else self._expected
            os.kill(self._child.pid, number)


class Crew:
    """All workers of a run, visitors included. `command`: the command that each worker runs.
    `first`: the number of the first worker. The logs of a worker are named by its number.
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
        """The workers that run and that no fault has picked."""
        return [worker for worker in self._workers if worker.is_running and not worker.busy]

    async def dismiss(self, *workers: Worker) -> None:
        """Let these workers drain, and wait until they have ended. If no worker is named, all of
        them.
        """
        leaving = workers or tuple(self._workers)
        for worker in leaving:
            worker.leave()
        await asyncio.wait([self._workers[worker] for worker in leaving])

    async def assigned(self) -> None:
        """Wait until every partition is assigned to one of the workers."""
        while sum(len(worker.partitions) for worker in self._workers) != PARTITIONS:
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """Kill all workers without a drain."""
        for task in self._workers.values():
            task.cancel()
