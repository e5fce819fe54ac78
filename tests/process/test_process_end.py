"""A process ends as Python does, unless obstore's threads would abort it."""

import subprocess
import sys

import pytest

from penstock.process.process_end import needs_shortcut

LEAVE = """
import atexit
{load}
from penstock.process.process_end import leave
atexit.register(print, "said goodbye")
print("did the work")
leave(3)
"""


@pytest.mark.parametrize("python", [(3, 11), (3, 12)])
def test_obstore_on_an_older_python_is_not_finalised(python: tuple[int, int]) -> None:
    assert needs_shortcut(python, obstore_is_loaded=True)


@pytest.mark.parametrize(
    ("python", "obstore_is_loaded"), [((3, 11), False), ((3, 13), True), ((3, 14), True)]
)
def test_all_others_leave_as_python_does(python: tuple[int, int], obstore_is_loaded: bool) -> None:
    assert not needs_shortcut(python, obstore_is_loaded=obstore_is_loaded)


@pytest.mark.parametrize("load", ["", "import obstore"])
def test_the_code_and_what_was_written_are_kept(load: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVE.format(load=load)], capture_output=True, text=True, check=False
    )
    expected = "did the work\n"
    if not needs_shortcut(sys.version_info[:2], obstore_is_loaded=bool(load)):
        expected += "said goodbye\n"
    assert (ended.returncode, ended.stdout) == (3, expected)


ASKED = """
import gc, os, signal, weakref
from penstock.process.process_end import leave_when_asked

class Lock:
    pass

leave_when_asked()
lock = Lock()
watch = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGTERM) or sum(range(1000)))
del lock
print("goes on starting", flush=True)
"""


def test_a_signal_within_a_callback_of_python_ends_a_start_too() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
