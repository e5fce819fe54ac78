"""One simulated worker: the real pipeline, which can be killed, frozen and stopped. A killed one is
called by nothing any more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.pipeline.life import Pipeline
from penstock.tools.simulation.checks.life import Life
from penstock.tools.simulation.kafka.group import SESSION_S, Group
from penstock.tools.simulation.kafka.source import SimulatedSource
from penstock.tools.simulation.kafka.topics import SimulatedSink
from penstock.tools.simulation.process_and_faults import Process
from penstock.tools.simulation.unreliable_services import SimulatedModel, SimulatedObjects


@dataclass(eq=False)
class SimulatedWorker:
    """Call `run` in a task of its own; call `kill`, `pause` or `stop` from outside."""

    pipeline: Pipeline
    source: SimulatedSource[Life]
    objects: SimulatedObjects
    models: Sequence[SimulatedModel]
    sink: SimulatedSink
    process: Process
    group: Group
    stopping: bool = field(default=False, init=False)
    _listening: asyncio.Task[None] | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.source.name

    async def run(self) -> None:
        """Return when the pipeline ends, or after `kill`. Raises what the pipeline raises."""
        self._task = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            self._listening = tasks.create_task(self.source.listen())
            await self.pipeline.run()
            self._listening.cancel()

    def kill(self, *, is_cut: bool) -> None:
        """Die as after `kill -9`. The group notices this only when the worker's session is over."""
        self.process.die(is_cut=is_cut)
        asyncio.get_running_loop().call_later(SESSION_S, self.group.leave, self.source)
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Freeze as after SIGSTOP. If the pause is longer than the worker's session, the group goes
        on without the worker.
        """
        self.process.pause()
        asyncio.get_running_loop().call_later(SESSION_S, self._expire)

    def _expire(self) -> None:
        if not self.process.going.is_set():
            self.group.leave(self.source)

    def go_on(self, heartbeat_s: float = 0.0) -> None:
        """Go on after `pause`. In the first `heartbeat_s` the worker does not know whether the
        group has gone on without it.
        """
        self.process.go_on()
        asyncio.get_running_loop().call_later(heartbeat_s, self._beat)

    def _beat(self) -> None:
        if self.process.alive and self.process.going.is_set():
            self.source.heartbeat()

    def stop(self) -> None:
        self.stopping = True
        self.pipeline.stop()
