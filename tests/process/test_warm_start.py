"""Commands that tests start warm are what any start makes of them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.decoders import zygote_client
from penstock.decoders.pool import Pool
from penstock.decoders.protocol import NEXT, Task
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions
from tests.support.waiting import DEADLINE_S
from tests.support.warm_start import PENSTOCK, ROOT

COLD = (sys.executable, "-m", "penstock")
NOWHERE = {
    "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "PENSTOCK_OBJECTS__ENDPOINT_URL": "file:///tmp",
    "PENSTOCK_HTTP__PORT": "0",
}
# Reads an object as `become` has a command do it, and counts the children.
DECODING = """
import asyncio
from pathlib import Path

from penstock.decoders.pool import Pool
from penstock.decoders.protocol import NEXT, Task
from penstock.formats.registry import claim_of
from penstock.formats.runs import RowOptions
from tests.support.warm_server import Spare


async def main() -> None:
    pool = Pool(1, 4_000, print)
    async with pool.lent("s", bool, bool) as decoder:
        task = Task(RowOptions(), claim_of("a.csv"), 4, 0, None, whole=b"1,2\\n")
        rows = await decoder.turn(task)
        print(rows[0].payload.values.tolist())
        of_threads = Path("/proc/self/task").glob("*/children")
        print(sum(len(file.read_text().split()) for file in of_threads))
    await pool.aclose()


spare = Spare()
spare.takes_the_place()
asyncio.run(main())
"""
# Starts a module of its own as `become` has `penstock bench` do it.
STARTING = """
import subprocess, sys
import pyarrow
from tests.support.warm_server import Nursery

nursery = Nursery()
nursery.takes_the_place()
for environ in (None, {"PYTHONPATH": "", "PYTHONHASHSEED": "0"}):
    command = [sys.executable, "-m", "child", "a", "b"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True)
    print(ended.returncode, ended.stdout.strip())
"""
CHILD = "import sys; print('pyarrow' in sys.modules, __name__, sys.argv[1:]); sys.exit(3)"


def said(*command: str, folder: Path) -> tuple[int, str, str]:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("arguments", [["run", "--help"], ["run", "--processes", "none"]])
def test_it_says_and_returns_what_a_cold_one_does(tmp_path: Path, arguments: list[str]) -> None:
    warm, cold = (said(*start, *arguments, folder=tmp_path) for start in (PENSTOCK, COLD))
    assert warm == cold


def told_by_the_kernel(pid: int, file: str) -> str:
    return Path(f"/proc/{pid}/{file}").read_text()


async def test_it_is_a_child_of_ours_with_streams_of_its_own_and_a_signal_ends_it() -> None:
    process = await asyncio.create_subprocess_exec(
        *PENSTOCK, "run", env=os.environ | NOWHERE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = b""
    async with asyncio.timeout(DEADLINE_S):
        while b"waiting" not in said:
            said += await process.stderr.readline()
            assert process.returncode is None, said
        assert f"PPid:\t{os.getpid()}\n" in told_by_the_kernel(process.pid, "status")
        assert "warm_server" in told_by_the_kernel(process.pid, "cmdline")
        process.terminate()
        assert await process.wait() == 0


def test_its_decoders_are_forked_from_what_was_loaded_too(tmp_path: Path) -> None:
    """Else there are two children: the process that has loaded it, and another that has to."""
    (tmp_path / "command.py").write_text(DECODING)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "command.py"], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert ended.stdout.splitlines() == [b"[[1.0, 2.0]]", b"1"], ended.stderr.decode()


def test_what_a_bench_starts_is_forked_too_unless_it_is_to_be_loaded_otherwise(
    tmp_path: Path,
) -> None:
    (tmp_path / "command.py").write_text(STARTING)
    (tmp_path / "child.py").write_text(CHILD)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "command.py"], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert ended.stdout.decode().splitlines() == [
        "3 True __main__ ['a', 'b']",
        "3 False __main__ ['a', 'b']",
    ], ended.stderr.decode()


def entries(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


async def decoding() -> dict[str, object]:
    """What the kernel tells of a decoder, and of the process that it was forked from."""
    pool = Pool(1, 4_000, print)
    async with pool.lent_alone("s", bool, bool) as decoder:
        assert pool._zygote is not None
        zygote, number = pool._zygote._process.pid, decoder._number
        # When it asks for the object's bytes, it has closed what it had from the zygote.
        assert await decoder.turn(Task(RowOptions(), claim_of("a.csv"), 4, 0, None)) == NEXT
        # Of its addresses a decoder may have so many more than were taken at its start.
        limits = told_by_the_kernel(number, "limits").splitlines()
        found = {
            "cold": "decoder_process" in told_by_the_kernel(zygote, "cmdline"),
            "session": os.getsid(zygote) == zygote,
            "parent": f"PPid:\t{os.getpid()}\n" in told_by_the_kernel(zygote, "status"),
            "files": [entries(f"/proc/{each}/fd") for each in (zygote, number)],
            "threads": len(entries(f"/proc/{number}/task")),
            "limits": [line for line in limits if not line.startswith("Max address space")],
            "environ": told_by_the_kernel(number, "environ"),
        }
    await pool.aclose()
    return found


async def test_what_decoders_are_forked_from_is_what_a_cold_start_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm = await decoding()
    monkeypatch.setattr(zygote_client, "COMMAND", ("/usr/bin/env", *zygote_client.COMMAND))
    assert await decoding() == warm | {"cold": True}
    assert not warm["cold"]
