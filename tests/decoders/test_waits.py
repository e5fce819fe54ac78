"""Whoever waits for a decoder, or for the process that starts them, does not wait for ever; and no
object is to blame for what the system did not give.
"""

import asyncio
import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.decoders.pool import MOST_PROVEN
from penstock.decoders.protocol import Decoders, Died, Task
from penstock.decoders.zygote_client import Zygote
from penstock.errors import Poison, Transient
from penstock.formats.registry import Claim
from penstock.formats.runs import RowOptions, Run
from tests.decoders.test_pool import (
    DEATHS,
    LONG_S,
    lent_read,
    may_take,
    open_files,
    pool,
    read,
    values,
)

HELD = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
seized = libc.ptrace(0x4206, int(sys.argv[1]), 0, 0)  # PTRACE_SEIZE
print("held" if not seized else "refused", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_a_debugger(process: int) -> Iterator[None]:
    """While a process is held, who started it is not told that it has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(process)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as debugger:
        assert debugger.stdout is not None
        if debugger.stdout.readline() != b"held\n":
            pytest.skip("this system lets nobody hold a process")
        yield


def zygote_of(decoders: object) -> Zygote:
    zygote = decoders._zygote  # type: ignore[attr-defined]
    assert isinstance(zygote, Zygote)
    return zygote


async def test_who_ends_the_zygote_does_not_wait_until_a_debugger_lets_it_go() -> None:
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        zygote = zygote_of(decoders)
        with held_by_a_debugger(zygote._process.pid):
            zygote.close()
            assert zygote._process.returncode is None
            await asyncio.sleep(0)  # until its decoders are known to have ended
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
        assert zygote._process.wait(LONG_S) == -signal.SIGKILL


async def test_a_zygote_that_reads_no_more_is_ended_when_nothing_fits_its_socket() -> None:
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        zygote = zygote_of(decoders)
        os.kill(zygote._process.pid, signal.SIGSTOP)
        ((_, decoder),) = decoders._idle
        for _ in range(100_000):
            zygote.kill(decoder._number)
        assert not zygote.is_alive
        await asyncio.sleep(0)  # until its decoders are known to have ended
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def files_left(free: int) -> Iterator[None]:
    """This process may open so many files more."""
    unused = [number for number in range(1_000) if not is_open(number)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused[free], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("free", range(4))
async def test_a_worker_at_its_limit_of_files_loses_none_by_a_decoder_that_it_cannot_have(
    free: int,
) -> None:
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        before = open_files(os.getpid())
        with files_left(free), pytest.raises(Transient, match="Too many open files"):
            await read(decoders, b"1,2\n", "a.csv", new=True)
        # What earlier tests left to the collector may go meanwhile.
        assert open_files(os.getpid()) <= before
        assert values(await read(decoders, b"3,4\n", "a.csv", new=True)) == [[3, 4]]


async def test_an_object_has_its_decoder_though_none_can_be_made_ahead() -> None:
    async with pool(most=1, reuse="object") as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        with files_left(2):  # the one that was made ahead is taken
            assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
        assert decoders._spare is None
        assert values(await read(decoders, b"5,6\n", "a.csv")) == [[5, 6]]
    assert not DEATHS


async def test_a_decoder_that_was_stopped_is_ended_and_its_first_object_is_not_to_blame() -> None:
    async with pool(most=1) as decoders:
        may_take(decoders, 0.5)
        async with decoders.lent_alone("s", bool, bool) as decoder:
            os.kill(decoder._number, signal.SIGSTOP)
            with pytest.raises(Died, match="less than half of its time") as died:
                await decoder.turn(Task(RowOptions(), Claim("a.csv", "csv", "any"), 4, 0, None))
        assert not died.value.by_object
        assert died.value.poison.code == "unavailable"
        may_take(decoders, LONG_S)
        assert values(await read(decoders, b"3,4\n", "a.csv", new=True)) == [[3, 4]]


async def test_decoders_of_a_worker_whose_starter_ignored_the_end_of_children() -> None:
    """As `nohup` does with another signal: what is ignored stays so in programs that are run."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with pool(most=1) as decoders:
            await read(decoders, b"1,2\n", "a.csv")
            signal.signal(signal.SIGCHLD, before)
            async with decoders.lent_alone("s", bool, bool) as decoder:
                os.kill(decoder._number, signal.SIGSEGV)
                with pytest.raises(Died, match="SIGSEGV"):
                    await decoder.turn(Task(RowOptions(), Claim("a.csv", "csv", "any"), 4, 0, None))
            zygote = zygote_of(decoders)
            assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
            assert zygote_of(decoders) is zygote
    finally:
        signal.signal(signal.SIGCHLD, before)


async def read_of(decoders: Decoders, stream: str, data: bytes, key: str) -> list[Run]:
    async with decoders.lent(stream, lambda: True, lambda: None) as decoder:
        return await lent_read(decoder, data, key, RowOptions())


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("word", [b"sleep", b"loop"])
async def test_a_stream_that_was_read_well_has_a_decoder_while_objects_of_six_others_hang(
    word: bytes,
) -> None:
    """By counts: no decoder is ended while this lasts."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1.0, 2.0]}), out)
    body = out.getvalue()
    async with pool(most=2) as decoders:
        expected = values(await read_of(decoders, "honest", body, "a.parquet"))
        hanging = [
            asyncio.create_task(read_of(decoders, f"strange {number}", word, "a.deadly"))
            for number in range(6)
        ]
        await asyncio.sleep(0)
        for _ in range(20):
            assert values(await read_of(decoders, "honest", body, "a.parquet")) == expected
        assert not DEATHS
        assert not any(each.done() for each in hanging)
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


@pytest.mark.usefixtures("planted")
async def test_a_stream_is_proven_as_long_as_its_objects_are_read_well() -> None:
    async with pool(most=1) as decoders:
        for data, key, is_proven in (
            (b"1,2\n", "a.csv", True),
            (b"segfault", "a.deadly", False),
            (b"1,2\n", "a.parquet", True),  # an error was soon found
        ):
            with suppress(Died, Poison):
                await read_of(decoders, "s", data, key)
            assert decoders.is_proven("s") is is_proven
            assert not decoders.is_proven("t")
        async with decoders.lent_alone("s", bool, bool) as decoder:
            await lent_read(decoder, b"1,2\n", "a.csv", RowOptions())
            decoder._worked_s = LONG_S / 4  # a large part of its time
        assert not decoders.is_proven("s")


async def test_the_streams_that_are_proven_are_few() -> None:
    async with pool() as decoders:
        for number in range(2 * MOST_PROVEN):
            decoders._note(str(number), is_proven=True)
        assert len(decoders._proven) == MOST_PROVEN
        assert decoders.is_proven(str(2 * MOST_PROVEN - 1))


REFUSED = """
import asyncio, ctypes, struct, sys
lines = [
    (0x20, 0, 0, 0),  # the call's number
    (0x15, 0, 1, int(sys.argv[1])),
    (0x06, 0, 0, 0x50000 | int(sys.argv[2])),  # is refused by this error
    (0x06, 0, 0, 0x7FFF0000),
]
code = b"".join(struct.pack("HBBI", *line) for line in lines)
buffer = ctypes.create_string_buffer(code, len(code))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer))
assert libc.prctl(22, 2, program, 0, 0) == 0

from penstock.errors import PenstockError
from tests.decoders.test_pool import pool, read, values

async def main():
    async with pool() as decoders:
        try:
            print(values(await read(decoders, b"1,2\\n", "a.csv")))
        except PenstockError as error:
            code = error.poison.code if hasattr(error, "poison") else ""
            print(type(error).__name__, code, error, getattr(error, "by_object", ""))

asyncio.run(main())
"""
EPERM, ENOSYS = 1, 38


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (434, EPERM, "Transient  no process to decode objects in: "),  # pidfd_open
        (444, ENOSYS, "[[1.0, 2.0]]"),  # landlock_create_ruleset: the kernel has none
        (446, EPERM, "Died unavailable the decoder could not begin, as the system refused it"),
    ],
)
def test_calls_that_the_profile_of_a_container_refuses(call: int, error: int, said: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", REFUSED, str(call), str(error)],
        stdout=subprocess.PIPE,
        cwd=Path.cwd(),
        check=True,
    )
    assert told.stdout.decode().startswith(said)
    assert b" True" not in told.stdout  # the object is not to blame
