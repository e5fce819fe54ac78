"""Causes the faults of a plan, each at its time, and keeps a log of them.

Rule: a fault that needs a worker waits until one is free. A fault of a service waits until the
fault before it on that service is over. Therefore faults may overlap, but never on the same worker
or service. Owner: the run.
"""

import asyncio
import json
import os
import signal
import time
from dataclasses import asdict, dataclass

from chaos_run.output_watch import Recovery, Watch
from chaos_run.plan import CRASH_AWAY_S, CUTS, Fault, Kind
from chaos_run.services_under_test import Place
from chaos_run.workers import Crew, Worker

LOOK_S = 0.05
# A worker counts as in the middle of an object if one of its rows came within this time. A fault
# waits up to `WAIT_FOR_ROWS_S` for such a worker, because a large object may take this time until
# its first row.
FLOWING_MS = 300
WAIT_FOR_ROWS_S = 2.0
# This share of the faults does not wait: if no worker is in the middle of an object, they take any
# free worker.
ANY_SHARE = 0.25


@dataclass
class Struck:
    """A fault as it happened. `recovery`: how long the partitions of a killed worker had no new
    rows.
    """

    kind: Kind
    planned_s: float
    began_ms: float
    ended_ms: float
    target: str
    partitions: list[int]
    recovery: Recovery | None = None

    def line(self) -> str:
        fields = asdict(self) | {"recovery": self.recovery and self.recovery.took_s}
        return json.dumps(fields)


class Faults:
    """Causes the faults: `strike` is to be called once for each."""

    def __init__(self, place: Place, crew: Crew, watch: Watch) -> None:
        self.struck: list[Struck] = []
        self._place = place
        self._crew = crew
        self._watch = watch
        self._turns = {name: asyncio.Lock() for name in ("kafka", "minio", "torchserve")}

    async def strike(self, fault: Fault) -> None:
        if fault.kind.startswith("restart "):
            service = fault.kind.removeprefix("restart ")
            async with self._turns[service]:
                struck = self._begin(fault, service)
                await asyncio.to_thread(self._place.restart, service)
        elif fault.kind == "crash kafka":
            async with self._turns["kafka"]:
                struck = self._begin(fault, "kafka")
                away_s = CRASH_AWAY_S
                await asyncio.to_thread(self._place.crash, "kafka", fault.length_s, away_s)
        elif fault.kind == "lose broker":
            async with self._turns["kafka"]:
                struck = self._begin(fault, "a broker")
                struck.target = await asyncio.to_thread(self._place.hosts.lose, fault.length_s)
        elif fault.kind == "roll workers":
            struck = self._begin(fault, "all workers")
            for worker in self._crew.free():
                worker.busy = True
                await worker.restarted()
                worker.busy = False
        elif fault.kind == "kill model worker":
            pid = await self._model_worker()
            struck = self._begin(fault, f"process {pid}")
            os.kill(pid, signal.SIGKILL)
        elif fault.kind == "join":
            visitor = self._crew.join()
            visitor.busy = True
            struck = self._begin(fault, visitor.name)
            await asyncio.sleep(fault.length_s)
            await self._crew.dismiss(visitor)
        else:
            worker = await self._worker(fault)
            struck = self._begin(fault, worker.name, worker)
            try:
                await self._hit(worker, fault, struck)
            finally:
                worker.busy = False
        struck.ended_ms = _now_ms()
        self._log()

    async def _hit(self, worker: Worker, fault: Fault, struck: Struck) -> None:
        if fault.kind in CUTS:
            with self._place.hosts.cut(worker.name, fault.kind, fault.victim):
                await asyncio.sleep(fault.length_s)
            return
        if fault.kind == "freeze":
            worker.freeze()
            await asyncio.sleep(fault.length_s)
            worker.thaw()
            return
        if fault.kind == "kill":
            struck.recovery = self._watch.recovery(struck.partitions, struck.began_ms)
        life = worker.life
        (worker.kill if fault.kind == "kill" else worker.terminate)()
        while worker.life == life:
            await asyncio.sleep(LOOK_S)

    def _begin(self, fault: Fault, target: str, worker: Worker | None = None) -> Struck:
        partitions = sorted(worker.partitions) if worker else []
        now_ms = _now_ms()
        struck = Struck(fault.kind, round(fault.at_s, 1), now_ms, now_ms, target, partitions)
        self.struck.append(struck)
        self._log()
        return struck

    async def _worker(self, fault: Fault) -> Worker:
        """A free worker in the middle of an object, if there is one; else any free worker."""
        until_ms = _now_ms() + WAIT_FOR_ROWS_S * 1000
        while True:
            free = self._crew.free()
            flowing = [worker for worker in free if self._is_flowing(worker)]
            if fault.victim < ANY_SHARE or _now_ms() > until_ms:
                flowing = flowing or free
            if flowing:
                worker = flowing[int(fault.victim * len(flowing))]
                worker.busy = True
                return worker
            await asyncio.sleep(LOOK_S)

    def _is_flowing(self, worker: Worker) -> bool:
        return _now_ms() - self._watch.last_row_ms(worker.partitions) < FLOWING_MS

    async def _model_worker(self) -> int:
        while (pid := await asyncio.to_thread(self._place.model_worker_pid)) is None:
            await asyncio.sleep(LOOK_S)
        return pid

    def _log(self) -> None:
        """Write the whole log again. Appending is not enough, because faults do not end in the
        order in which they begin.
        """
        lines = "".join(one.line() + "\n" for one in self.struck)
        (self._place.folder / "faults.jsonl").write_text(lines)


def _now_ms() -> float:
    return time.time() * 1000
