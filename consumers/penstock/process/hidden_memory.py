"""Hides the memory and the environment of our own processes, in which credentials are, from other
processes of the same user.

Rule: only a process that is wholly ours uses this, at its start: debuggers and profilers of the
same user cannot look into such a process, and it leaves no core dump. Programs that it starts are
not hidden. Owner: the start of the process.
"""

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def hide_memory() -> None:
    """With a kernel other than Linux this does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
