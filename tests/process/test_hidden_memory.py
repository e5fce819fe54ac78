"""The secrets in a worker's environment and memory, for another process of the same user."""

import subprocess
import sys

import pytest

# What a decoder is: without capabilities, as one that was started by root is, too.
BARE = """
import ctypes, struct, sys
ctypes.CDLL(None).capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))
"""
LOOK = f"""{BARE}
try:
    print(b"SECRET=s3" in open("/proc/%s/environ" % sys.argv[1], "rb").read())
except PermissionError:
    print("refused")
"""
OWN = BARE + "{}; print(flush=True); sys.stdin.read()"
HIDE = "from penstock.process.memory import hide_memory; hide_memory()"
COMMAND = """
import ctypes, sys
sys.argv = ["penstock", "--version"]
from penstock.commands.root import main
try:
    main()
finally:
    print("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
"""


@pytest.mark.parametrize(("done", "seen"), [("pass", "True"), (HIDE, "refused")])
def test_the_environment_of_a_hidden_process_is_refused(done: str, seen: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWN.format(done)],
        env={"SECRET": "s3", "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        look = [sys.executable, "-c", LOOK, str(process.pid)]
        found = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        process.communicate(b"")
    assert found.strip() == seen


def test_each_command_is_hidden() -> None:
    done = [sys.executable, "-c", COMMAND]
    output = subprocess.run(done, capture_output=True, text=True, check=False).stdout
    assert output.splitlines()[-1] == "dumpable 0"
