"""The process of a simulated worker as the services see it: running, paused, or dead.

Rule: a service awaits `gate` before each request and each answer: a paused worker waits there, and
a dead one stays there. Owner: the simulation, one per worker.
"""

import asyncio


class Process:
    """`is_cut`: True if the process is dead, and everything that it has sent and that has not
    arrived yet is lost. `going` is set unless the process is paused.
    """

    def __init__(self) -> None:
        self.alive = True
        self.is_cut = False
        self.paused_s = 0.0
        self._paused_at_s = 0.0
        self.going = asyncio.Event()
        self.going.set()

    async def gate(self) -> None:
        """Return as soon as the process runs. If the process is dead, never return."""
        while not (self.alive and self.going.is_set()):
            if not self.alive:
                await asyncio.get_running_loop().create_future()
            await self.going.wait()

    def pause(self) -> None:
        if self.going.is_set():
            self._paused_at_s = asyncio.get_running_loop().time()
            self.going.clear()

    def go_on(self) -> None:
        if not self.going.is_set():
            self.paused_s += asyncio.get_running_loop().time() - self._paused_at_s
            self.going.set()

    def die(self, *, is_cut: bool) -> None:
        """`is_cut`: True if everything that the process has sent and that has not arrived yet is
        lost.
        """
        self.alive, self.is_cut = False, is_cut
        self.going.set()
