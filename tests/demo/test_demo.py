"""`penstock demo` as a person runs it: in a process of its own, whole, on the embedded services."""

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import DEADLINE_S, until

PROOF = re.compile(r"([\d,]+) rows of (\d+) streams in ([\d,]+) objects: in order, none lost")
# The pid of the worker is told after two seconds. A worker that is killed then is replaced after
# about as long, so streams that go on meanwhile cost nothing.
LONG_S = "10"


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo that keeps its files in `folder`; its children know the folder, too."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ | {"TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what is still to be read."""
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def lines_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"no line like {pattern}: {finish(process)}")


def processes_of(folder: Path) -> list[int]:
    """Every process that was started with this folder for its temporary files."""
    marker = f"TMPDIR={folder}\0".encode()
    found = Path("/proc").glob("[0-9]*/environ")
    return [int(entry.parent.name) for entry in found if marker in _read(entry)]


def is_decoder(pid: int) -> bool:
    """One of them, or the process that they are made from."""
    return b"penstock.decoders.decoder_process" in _read(Path(f"/proc/{pid}/cmdline")).split(b"\0")


def _read(entry: Path) -> bytes:
    try:
        return entry.read_bytes()
    except OSError:  # it ended meanwhile, or is somebody else's
        return b""


def assert_nothing_is_left(folder: Path) -> None:
    assert_no_process_is_left(folder)
    assert list(folder.iterdir()) == []


def assert_no_process_is_left(folder: Path) -> None:
    """A decoder that was killed may still be ending: nobody waits for it."""

    async def are_gone() -> bool:
        return not processes_of(folder)

    asyncio.run(until(are_gone, lambda: f"the end of {processes_of(folder)}"))


def children_of(process: subprocess.Popen[str], folder: Path) -> set[int]:
    """The services and the worker are three; besides there are decoders, once an archive has come.
    For a moment a decoder looks like the worker that starts it.
    """
    children: set[int] = set()

    async def are_three() -> bool:
        nonlocal children
        children = set(processes_of(folder)) - {process.pid}
        return len([pid for pid in children if not is_decoder(pid)]) == 3

    asyncio.run(until(are_three, lambda: f"three beside decoders: {children}"))
    return children


def test_it_says_at_once_what_it_does_and_where_its_worker_can_be_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", LONG_S, "--streams", "3") as process:
        assert process.stdout is not None
        assert "then 3 streams for 10 s" in process.stdout.readline()
        page = lines_until(process, r"(http://\S+)/#token=(\S+)")
        assert page.string.startswith("the live page")
        lines_until(process, "kill -9")
        kill = urllib.request.Request(f"{page[1]}/api/kill", b"{}")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(kill)
        kill.add_header("Authorization", f"Bearer {page[2]}")
        with pytest.raises(OSError, match=r"closed|reset"):
            urllib.request.urlopen(kill)
        code, out, err = finish(process)
        assert (code, err) == (0, ""), out
        assert "the worker was ended once" in out
        assert_nothing_is_left(tmp_path)


def test_it_proves_that_nothing_is_lost_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "2", "--streams", "3") as process:
        code, out, err = finish(process)
        assert (code, err) == (0, ""), out
        proof = PROOF.search(out)
        assert proof is not None, out
        # 3 streams, 2 s, 5 Hz.
        assert (proof[2], proof[3]) == ("3", "30")
        assert "none twice" in out
        assert_nothing_is_left(tmp_path)


def test_a_killed_worker_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", LONG_S, "--streams", "3") as process:
        worker = lines_until(process, r"kill -9 (\d+)")[1]
        os.kill(int(worker), signal.SIGKILL)
        code, out, err = finish(process)
        assert (code, err) == (0, ""), out
        proof = PROOF.search(out)
        assert proof is not None, out
        # 3 streams, 10 s, 5 Hz.
        assert proof[3] == "150"
        assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_streams_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--streams", "3") as process:
        lines_until(process, "embedded model")
        process.send_signal(number)
        code, _, err = finish(process)
        assert code == 130
        assert "stopped before the proof" in err
        assert_nothing_is_left(tmp_path)


def test_ctrl_c_ends_the_streams_early_and_the_proof_follows(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", "--streams", "3") as process:
        lines_until(process, "rows/s")
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
        assert (code, err) == (0, ""), out
        assert PROOF.search(out), out
        assert_nothing_is_left(tmp_path)


def test_a_demo_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", "--streams", "3") as process:
        lines_until(process, "rows/s")
        ends = [os.pidfd_open(pid) for pid in children_of(process, tmp_path)]
        process.kill()
        for end in ends:
            assert select.select([end], [], [], DEADLINE_S)[0]
            os.close(end)
