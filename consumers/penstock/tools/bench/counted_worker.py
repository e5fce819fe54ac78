"""The command line `penstock`, as a process that counts what it calls between SIGUSR1 and SIGUSR2.

Rule: these counts do not depend on the machine, so they show changes that no clock can. Counting
makes each call several times as slow, so only ticks that come alone are counted: a busy worker
would take more records at a time.
"""

import runpy
import signal
import sys
from asyncio.base_events import BaseEventLoop
from types import FrameType
from typing import Any, Final

from msgspec import Struct

from penstock.tools.bench.child_processes import say

# The calls of the system that a worker makes for each tick, as Python names them. `select` is the
# event loop's look for what has arrived.
_SENDS: Final = ("send", "sendto", "sendmsg")
_RECEIVES: Final = ("recv", "recv_into")
_SELECTS: Final = ("poll", "select")
_TURN: Final = BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]


class Calls(Struct):
    """How often what was called. `python`: functions in Python, and each time that a coroutine or a
    generator goes on. `turns`: turns of the event loop.
    """

    python: float = 0
    turns: float = 0
    sends: float = 0
    receives: float = 0
    selects: float = 0

    def note(self, frame: FrameType, event: str, what: Any) -> None:
        """For `sys.setprofile`."""
        if event == "call":
            self.python += 1
            self.turns += frame.f_code is _TURN
        elif event == "c_call":
            name = what.__name__
            self.sends += name in _SENDS
            self.receives += name in _RECEIVES
            self.selects += name in _SELECTS

    def for_each_of(self, ticks: int) -> "Calls":
        return Calls(*(getattr(self, name) / ticks for name in self.__struct_fields__))


def _count_when_asked() -> None:
    calls = Calls()

    def begin(*_: object) -> None:
        sys.setprofile(calls.note)

    def end(*_: object) -> None:
        sys.setprofile(None)
        say(calls)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)


if __name__ == "__main__":
    _count_when_asked()
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
