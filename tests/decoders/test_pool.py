"""Decoders as processes: rows as in this process, and what becomes of those that die."""

import asyncio
import ctypes
import gc
import io
import os
import platform
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from select import select

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.rows.payload import Form, Matrix
from penstock.decoders.kernel_figures import state_and_ticks
from penstock.decoders.packing import packed
from penstock.decoders.pool import FORK_S, IDLE_BYTES, IDLE_S, Pool, Reuse
from penstock.decoders.pooled_decoder import PooledDecoder
from penstock.decoders.protocol import (
    NEXT,
    TAIL,
    Decoder,
    Decoders,
    Died,
    Said,
    Task,
    tail_of,
    tasks_said,
)
from penstock.decoders.simulated import DecodersAtHand
from penstock.decoders.socket_messages import ENDED, ROWS, Message
from penstock.decoders.system_calls import HANDING_OVER
from penstock.decoders.zygote_client import KILLED_S
from penstock.errors import Poison, Transient, Unforeseen
from penstock.formats.registry import Claim, claim_of
from penstock.formats.runs import FRAME_BYTES, PIECE_ROWS, RowOptions, Run
from tests.formats.support import rows_of
from tests.support.deadly_formats import SCATTERED

DEATHS: list[str] = []
# Longer than any test: nobody is ended for a pause of the machine.
LONG_S = 600.0


@asynccontextmanager
async def pool(
    most: int = 2, reuse: Reuse = "stream", idle_bytes: int = IDLE_BYTES
) -> AsyncIterator[Pool]:
    DEATHS.clear()
    decoders = Pool(most, 4_000, DEATHS.append, reuse=reuse, least_s=LONG_S, idle_bytes=idle_bytes)
    try:
        yield decoders
    finally:
        await decoders.aclose()


def may_take(decoders: Pool, least_s: float) -> None:
    """From now on, in the decoders that are there and in those to come."""
    decoders._times = (decoders._times[0], least_s)
    for _, decoder in decoders._idle:
        decoder._least_s = least_s


async def lent_read(decoder: Decoder, data: bytes, key: str, options: RowOptions) -> list[Run]:
    """The runs of an object at hand, in chunks of 1,000 bytes."""
    runs: list[Run] = []
    chunks = [data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)]
    # Only the decoders have the package of the deadly format.
    claim = Claim(key, "deadly", "any") if key.endswith(".deadly") else claim_of(key)
    message = await decoder.turn(Task(options, claim, len(data), 0, None))
    while message is not None:
        answer = b""
        if isinstance(message, list):
            runs += message
        elif message == NEXT:
            answer = chunks.pop(0) if chunks else b""
        elif message == TAIL:
            answer = tail_of(len(data), data[-100:])
        else:
            answer = data[message.start : message.stop]
        message = await decoder.turn(answer)
    return runs


async def read(
    decoders: Decoders,
    data: bytes,
    key: str,
    options: RowOptions | None = None,
    *,
    new: bool = False,
) -> list[Run]:
    async with decoders.lent("s", lambda: False, lambda: None, new=new) as decoder:
        return await lent_read(decoder, data, key, options or RowOptions())


def values(runs: list[Run]) -> list[list[float]]:
    found: list[list[float]] = []
    for run in runs:
        assert isinstance(run.payload, Matrix)
        found += run.payload.values.tolist()
    return found


LONG = b"".join(b"%d,%d\n" % (row, -row) for row in range(400_000))


@pytest.mark.parametrize("form", ["matrix", "json", "columns"])
async def test_rows_are_those_of_this_process(form: Form) -> None:
    options, data = RowOptions(form=form), b"a,b\n1,2\n3,x\n5,6\n"
    here = await read(DecodersAtHand(), data, "a.csv", options)
    async with pool() as decoders:
        there = await read(decoders, data, "a.csv", options)
    assert rows_of(there) == rows_of(here)


async def test_a_small_object_at_hand_takes_one_turn_with_its_decoder() -> None:
    data = b"1,2\n3,4\n"
    async with pool(most=1) as decoders, decoders.lent_alone("s", bool, bool) as decoder:
        task = Task(RowOptions(), claim_of("a.csv"), len(data), 0, None, whole=data)
        rows = await decoder.turn(task)
        assert isinstance(rows, list)
        assert values(rows) == [[1.0, 2.0], [3.0, 4.0]]
        # Nothing is left to ask: that it has gone is no matter.
        os.kill(decoder._number, signal.SIGKILL)
        assert await decoder.turn(b"") is None


def test_a_decoder_is_not_told_what_was_said_of_other_objects() -> None:
    options = RowOptions()
    options.notices.once("the columns of another stream")
    options.fitting["of another stream"] = True
    assert b"another" not in b"".join(
        tasks_said([Task(options, claim_of("a.csv"), 1, 0, None)], None)
    )


async def test_a_decoder_reads_each_object_by_its_own_options() -> None:
    both, second = RowOptions(), RowOptions(columns=[1])
    async with pool(most=1) as decoders:
        for options, row in (
            (both, [1.0, 2.0]),
            (both, [1.0, 2.0]),
            (second, [2.0]),
            (both, [1, 2]),
        ):
            assert values(await read(decoders, b"1,2\n", "a.csv", options)) == [row]


async def test_what_is_long_travels_both_ways() -> None:
    async with pool() as decoders:
        runs = await read(decoders, LONG, "a.csv")
    assert values(runs) == [[row, -row] for row in range(400_000)]


async def test_an_object_that_cannot_be_read_leaves_its_decoder_for_the_next() -> None:
    async with pool(most=1) as decoders:
        for _ in range(3):
            with pytest.raises(Poison, match="no Parquet file"):
                await read(decoders, b"1,2\n", "a.parquet")
        assert values(await read(decoders, b"1,2\n", "a.csv")) == [[1, 2]]
    assert not DEATHS


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("word", "code", "words", "death"),
    [
        ("segfault", "bad_format", r"killed by signal 11 \(SIGSEGV\)", "SIGSEGV"),
        ("nameless signal", "bad_format", r"killed by signal 40 \(another\)", "another"),
        ("exit", "bad_format", "ended with exit code 7", "none"),
        ("sleep", "unavailable", "took too long|less than half of its time", "SIGKILL"),
    ],
)
async def test_a_decoder_that_dies_takes_only_its_object_along(
    word: str, code: str, words: str, death: str
) -> None:
    async with pool(most=2) as decoders:
        assert values(await read(decoders, b"1,2\n", "a.csv")) == [[1, 2]]
        # Who dies by itself is not to be ended before, and neither is who reads well.
        may_take(decoders, 0.5 if death == "SIGKILL" else LONG_S)
        with pytest.raises(Died, match=words) as first:
            await read(decoders, word.encode(), "a.deadly")
        assert not first.value.by_object
        with pytest.raises(Died, match=words) as second:
            await read(decoders, word.encode(), "a.deadly", new=True)
        assert second.value.by_object is (word not in ("exit", "sleep"))
        assert second.value.poison.code == code
        assert [death, death] == DEATHS
        may_take(decoders, LONG_S)
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


@pytest.mark.usefixtures("planted")
async def test_an_object_that_lets_its_decoder_compute_for_too_long_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = time.monotonic()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    async with pool(most=1) as decoders:
        may_take(decoders, 0.5)
        async with decoders.lent_alone("s", bool, bool) as decoder:
            reading = asyncio.create_task(lent_read(decoder, b"loop", "a.deadly", RowOptions()))
            while state_and_ticks(decoder._number)[1] < os.sysconf("SC_CLK_TCK"):  # noqa: ASYNC110
                await asyncio.sleep(0)
            now_s += 0.75
            with pytest.raises(Died, match="took too long") as died:
                await reading
        assert died.value.by_object
        assert died.value.poison.code == "too_large"


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("before_s", [0.0, 35.0])
async def test_a_decoder_may_wait_for_the_machine_in_all_turns_for_four_times_its_time(
    before_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    async with pool(most=1) as decoders:
        may_take(decoders, 10.0)
        async with decoders.lent_alone("s", bool, bool) as decoder:
            reading = asyncio.create_task(lent_read(decoder, b"loop", "a.deadly", RowOptions()))
            while not decoder._given_bytes or state_and_ticks(decoder._number)[0] != b"R":  # noqa: ASYNC110
                await asyncio.sleep(0)
            decoder._worked_s = before_s  # in other turns
            now_s += 10.1
            for _ in range(3):
                await asyncio.sleep(0)
            assert decoder._overran is (before_s > 0)
            decoder._zygote.kill(decoder._number)
            with pytest.raises(Died, match=r"killed by|less than half"):
                await reading


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("word", "words"),
    [("busy", "No buffer space"), ("no thread", "Failed to launch worker")],
)
async def test_what_the_system_refuses_a_decoder_is_told_and_no_fault_of_the_object(
    word: str, words: str
) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match=f"failed: .*{words}") as first:
            await read(decoders, word.encode(), "a.deadly")
        assert not first.value.by_object
        assert first.value.poison.code == "unavailable"
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


async def test_an_answer_that_comes_in_one_turn_with_the_end_of_its_time_is_taken() -> None:
    """As after a pause of the event loop."""
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        may_take(decoders, -1.0)  # over, whatever is granted for its bytes
        async with decoders.lent_alone("s", lambda: False, lambda: None) as decoder:
            task = Task(RowOptions(), claim_of("a.csv"), 4, 0, None)
            answering = asyncio.create_task(decoder.turn(task))
            await asyncio.sleep(0)  # it is asked
            select([decoder._end], [], [])  # and answers while the loop stands
            assert await answering == NEXT
            assert not decoder._overran  # else its death is under way
            runs: list[Run] = []
            while (message := await decoder.turn(b"" if runs else b"1,2\n")) is not None:
                runs += message if isinstance(message, list) else []
        assert values(runs) == [[1, 2]]
        assert not DEATHS


async def test_answers_that_come_with_the_end_of_the_time_again_and_again_are_not_taken() -> None:
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        may_take(decoders, -1.0)
        async with decoders.lent_alone("s", lambda: False, lambda: None) as decoder:
            said = await late(decoder, Task(RowOptions(), claim_of("a.csv"), 400, 0, None))
            for _ in range(2):
                said = await late(decoder, b"1,2\n" if said == NEXT else b"")
            with pytest.raises(Died, match="took too long"):
                await late(decoder, b"1,2\n" if said == NEXT else b"")


async def late(decoder: PooledDecoder, turn: Task | bytes) -> Said:
    """It answers while the loop stands and its time ends."""
    answering = asyncio.create_task(decoder.turn(turn))
    decoder._left_s = -1.0
    await asyncio.sleep(0)
    select([decoder._end], [], [])
    return await answering


async def test_time_is_bought_by_bytes_of_the_object_and_some_by_its_rows() -> None:
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        ((_, decoder),) = decoders._idle
        decoder._least_s, mib = 10.0, 1 << 20
        decoder._begin(Task(RowOptions(), claim_of("a.csv"), mib, 0, None))
        assert decoder._left_s == 10
        for _ in range(9):  # it asks again and again
            decoder._buy(mib)
        assert decoder._left_s == 14
        decoder._buy_by_rows(mib << 9)
        assert decoder._left_s == 14  # no time is saved up
        decoder._left_s = 1
        decoder._buy_by_rows(mib)
        assert decoder._left_s == 1.25
        spent_s = 0.25
        for _ in range(99):
            decoder._left_s = 0
            decoder._buy_by_rows(mib << 9)
            spent_s += decoder._left_s
        assert spent_s == 64 * 14


@pytest.mark.usefixtures("planted")
async def test_beside_one_that_hangs_another_object_is_read() -> None:
    async with pool(most=2) as decoders:
        hanging = asyncio.create_task(read(decoders, b"loop", "a.deadly"))
        await read(decoders, b"1,2\n", "a.csv")
        assert values(await read(decoders, b"1,2\n", "a.csv")) == [[1, 2]]
        assert not hanging.done()
        hanging.cancel()
        await asyncio.wait([hanging])


@pytest.mark.usefixtures("planted")
async def test_memory_is_bounded_and_what_nobody_foresaw_has_its_trace() -> None:
    async with pool() as decoders:
        with pytest.raises(Poison, match="needs more than 2048 MiB") as caught:
            await read(decoders, b"memory", "a.deadly")
        assert caught.value.code == "too_large"
        with pytest.raises(Unforeseen, match="KeyError") as unforeseen:
            await read(decoders, b"raise", "a.deadly")
        assert "deadly_formats.py" in str(unforeseen.value.__cause__)
    assert not DEATHS


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ("socket", "PermissionError"),
        ("write", "PermissionError"),
        ("program", "PermissionError"),
        ("fork", "PermissionError"),
        ("signal", "PermissionError"),
        ("signal by a pipe", "PermissionError"),
        ("limits", "PermissionError"),
        ("outlive", "PermissionError"),
        ("process", "PermissionError"),
        ("process of a thread's flags", "PermissionError"),
        ("thread with files of its own", "PermissionError"),
        ("files of its own", "PermissionError"),
        ("signal by a request", "Inappropriate ioctl"),
        ("memory as a file", "PermissionError"),
        ("memory that is shared", "PermissionError"),
        ("memory of huge pages", "PermissionError"),
        ("signals in a queue", "BlockingIOError"),
        ("foreign file", "PermissionError"),
        ("folder", "PermissionError"),
        ("memory of others", "PermissionError"),
        ("secrets of others", "PermissionError"),
        ("descriptor", "PermissionError"),
        ("take the outbox from under its reader", "PermissionError"),
        ("watch", "PermissionError"),
        ("descriptor from where one was", "Bad file descriptor"),
        ("own limits", r"\(0, 0\)"),
        ("capabilities", r"\(0, 0, 0, 0, 0, 0\)"),
        ("its own signal", "done"),
        ("name service", r"\d"),
        ("terminal", "False"),
        ("thread", "done"),
        ("threads", "15"),
        ("newer open", "Function not implemented"),
        ("secrets", "False"),
    ],
)
async def test_a_decoder_comes_to_nothing(
    what: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    async with pool() as decoders:
        with pytest.raises(Poison, match=answer):
            await read(decoders, b"try " + what.encode(), "a.deadly")


# keyctl, ptrace, bpf, shmget and one of the x32 convention; and on aarch64
OTHER_CALLS = {"x86_64": (250, 101, 321, 29, 0x40000001), "aarch64": (219, 117, 280, 194)}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("call", OTHER_CALLS[platform.machine()])
async def test_a_call_that_no_library_makes_ends_the_decoder_and_is_told(call: int) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match=f"the system call {call} of") as died:
            await read(decoders, b"call %d" % call, "a.deadly", new=True)
        assert died.value.by_object
        assert died.value.poison.code == "bad_format"
        assert DEATHS == ["SIGSYS"]
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


@pytest.mark.usefixtures("planted")
async def test_a_decoder_that_starts_thread_after_thread_is_ended() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match="more than 16 threads") as died:
            await read(decoders, b"try more threads", "a.deadly", new=True)
        assert died.value.by_object
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


@pytest.mark.usefixtures("planted")
async def test_a_decoder_that_computes_while_it_is_idle_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Poison, match="done"):
            await read(decoders, b"try compute when idle", "a.deadly")
        ((_, decoder),) = decoders._idle
        while decoder.is_idle:
            decoder.review()
            await asyncio.sleep(0)
        assert await decoders._zygote.ended(decoder._number) == (-signal.SIGKILL, None)  # type: ignore[union-attr]
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


@pytest.mark.usefixtures("planted")
async def test_a_decoder_whose_memory_the_kernel_does_not_tell_is_ended() -> None:
    async with pool(most=1) as decoders:
        assert not await read(decoders, b"first thread ends", "a.deadly")
        for _, decoder in decoders._idle:
            while decoder.is_idle:
                decoder.review()
                await asyncio.sleep(0)
            assert await decoders._zygote.ended(decoder._number) == (-signal.SIGKILL, None)  # type: ignore[union-attr]
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


@pytest.mark.usefixtures("planted")
async def test_what_the_kernel_holds_for_scattered_memory_of_a_decoder_is_weighed() -> None:
    async with pool(most=1) as decoders:
        await read(decoders, b"scattered memory", "a.deadly")
        ((_, decoder),) = decoders._idle
        assert decoder.held_bytes > SCATTERED * 2 * 4_096


@pytest.mark.usefixtures("planted")
async def test_threads_of_an_idle_decoder_are_weighed_as_a_container_may_have_few() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Poison, match="done"):
            await read(decoders, b"try stay with threads", "a.deadly")
        ((_, decoder),) = decoders._idle
        assert decoder.weigh() > IDLE_BYTES // 5


@pytest.mark.usefixtures("planted")
async def test_threads_of_a_decoder_come_behind_others() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Poison, match="done"):
            await read(decoders, b"try thread", "a.deadly")
        ((_, decoder),) = decoders._idle
        behind = os.getpriority(os.PRIO_PROCESS, decoder._number)
    assert behind == min(19, os.nice(0) + 12)


@pytest.mark.usefixtures("planted")
async def test_a_decoder_that_closes_its_end_and_goes_on_is_ended_at_once() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match="SIGKILL"):
            async with asyncio.timeout(KILLED_S):
                await read(decoders, b"close end", "a.deadly")


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "asked",
    [
        *("0 1099511627776 1", "3 2 1", "-5 2 1", "0 0 1"),
        *("0 900000 99", "0 1 9999"),  # too often: each is a request to the store
        "999999 1000000 1",  # which came with the size
    ],
)
async def test_a_decoder_that_asks_for_more_than_an_object_has_is_ended(asked: str) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match="says nonsense: it asks for bytes"):
            await read(decoders, f"ask {asked}".ljust(1_000_000).encode(), "a.deadly")
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


LARGE_ROW_BYTES = 640 * 640 * 3 * 4


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(("size", "frames"), [(9, 4_096), (30_000_000, 30_000_000 // FRAME_BYTES)])
async def test_an_object_may_become_as_many_large_rows_as_a_film_has_frames_and_no_more(
    size: int, frames: int
) -> None:
    options = RowOptions(row_bytes=LARGE_ROW_BYTES)
    async with pool(most=1) as decoders:
        task = Task(options, Claim("a.deadly", "deadly", "any"), size, 0, None)
        async with decoders.lent_alone("a", lambda: False, lambda: None) as decoder:
            assert await decoder.turn(task) == NEXT
            decoder._made_bytes = frames * LARGE_ROW_BYTES
            assert await decoder.turn(b"give rows") == NEXT
            decoder._made_bytes += (frames // 2) * LARGE_ROW_BYTES
            with pytest.raises(Died, match=r"made more than \d+ bytes of rows.*row_bytes") as died:
                await decoder.turn(b"")
            assert died.value.poison.code == "too_large"


@pytest.mark.usefixtures("planted")
async def test_of_a_run_that_is_too_large_the_bound_and_the_way_out_are_said() -> None:
    async with pool(most=1) as decoders:
        options = RowOptions(row_bytes=1_000)
        with pytest.raises(Died, match=r"more than 67182400 bytes.* several Runs") as died:
            await read(decoders, b"give much", "a.deadly", options)
        assert died.value.poison.code == "too_large"


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("end", "of 4194305 bytes"),
        ("texts", "of the form"),
        ("opaque", "of the form"),
        ("columns", "than was asked"),
        ("times", "than was asked"),
        ("nothing", "that are wanted"),
    ],
)
async def test_rows_that_are_not_those_of_the_task_end_the_decoder(given: str, why: str) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match=f"says nonsense: .*{why}"):
            await read(decoders, f"give {given}".encode(), "a.deadly")


async def test_of_a_piece_of_many_runs_others_have_turns_meanwhile() -> None:
    run = Run(1, Matrix(np.ones((1, 2), np.float32)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        ((_, decoder),) = decoders._idle
        decoder._begin(Task(RowOptions(), claim_of("a.csv"), 4_000, 0, None))
        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        body = b"".join(packed([run] * 1_000))
        assert len(await decoder._understood(Message(ROWS, body))) == 1_000  # type: ignore[arg-type]
        counting.cancel()
    assert turns == 1_000 // PIECE_ROWS


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "words", ["notes", "text", "about", "texts", "message", "trace", "libraries"]
)
async def test_a_decoder_that_says_too_much_at_the_end_is_ended(words: str) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match=r"says nonsense: .*(length <= (20|8192)|too long)"):
            await read(decoders, f"end {words}".encode(), "a.deadly")


async def test_an_end_with_what_no_end_has_is_nonsense_however_deep_it_is() -> None:
    deep = b"\x82\xa5notes\x90\xa4more" + b"\x91" * 9_000 + b"\xc0"
    async with pool(most=1) as decoders, decoders.lent_alone("s", bool, bool) as decoder:
        with pytest.raises(ValueError, match="unknown field"):
            await decoder._understood(Message(ENDED, deep))


@pytest.mark.usefixtures("planted")
async def test_of_many_long_lines_about_an_object_only_the_first_characters_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Poison, match="xxx"):
            await read(decoders, b"chatter", "a.deadly")
    records = [record for record in caplog.records if record.name.endswith("pooled_decoder")]
    lines = [record.getMessage() for record in records]
    assert [(line.split()[0], len(line)) for line in lines] == [("0", 8 << 10)]


@pytest.mark.usefixtures("planted")
async def test_a_decoder_cannot_take_the_memory_of_its_inbox_away() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Poison, match="done"):
            await read(decoders, b"try inbox", "a.deadly")
        assert len(values(await read(decoders, LONG, "a.csv"))) == 400_000


@pytest.mark.parametrize(
    ("reuse", "streams", "count"),
    [
        ("any", "abcab", 1),
        ("stream", "aaaa", 1),
        ("stream", "ababab", 2),
        ("stream", "abcdeabcde", 5),
        ("object", "aab", 3),
    ],
)
async def test_whose_objects_a_decoder_decodes(reuse: Reuse, streams: str, count: int) -> None:
    async with pool(most=2, reuse=reuse) as decoders:
        seen = await seen_by(decoders, streams)
        assert len(seen) == count
        assert len(decoders._idle) == (0 if reuse == "object" else count)
        if reuse != "any":
            assert all(len(each) == 1 for each in seen.values())


async def seen_by(decoders: Pool, streams: str) -> dict[int, set[str]]:
    """For each decoder the streams whose objects it has read."""
    seen: dict[int, set[str]] = {}
    for stream in streams:
        async with decoders.lent_alone(stream, lambda: False, lambda: None) as decoder:
            await lent_read(decoder, b"1,2\n", "a.csv", RowOptions())
            seen.setdefault(decoder._number, set()).add(stream)
    return seen


async def test_idle_decoders_beyond_those_that_may_work_are_kept_as_far_as_memory_is_bounded() -> (
    None
):
    async with pool(most=2, idle_bytes=0) as decoders:
        seen = await seen_by(decoders, "abcabc")
        assert len(decoders._idle) == 2
        assert len(seen) > 2
        assert all(len(each) == 1 for each in seen.values())


async def test_no_file_of_the_zygote_has_the_number_that_a_new_decoder_needs() -> None:
    """Each decoder takes two of its numbers, so it comes to this one."""
    async with pool(most=1, idle_bytes=1 << 40) as decoders:
        assert len(await seen_by(decoders, "".join(map(chr, range(300, 340))))) == 40
        assert decoders._zygote is not None
        assert open_file(decoders._zygote._process.pid, HANDING_OVER) == Path("/dev/null")


@pytest.mark.parametrize("idle_bytes", [0, 20 << 20, IDLE_BYTES])
async def test_what_idle_decoders_hold_is_known_as_they_come_and_go(idle_bytes: int) -> None:
    async with pool(most=1, idle_bytes=idle_bytes) as decoders:
        for streams in ("abca", "dda", "bb"):
            await seen_by(decoders, streams)
            assert decoders._held_bytes == sum(one.held_bytes for _, one in decoders._idle)
        decoders._review()
        assert decoders._held_bytes == sum(one.weigh() for _, one in decoders._idle)
        decoders._idle_bytes = 0  # as if they had taken more since
        decoders._review()
        assert len(decoders._idle) == 1


async def test_idle_decoders_end_that_no_object_came_to_for_long_but_for_those_that_may_work() -> (
    None
):
    async with pool(most=1) as decoders:
        await seen_by(decoders, "abc")
        old, recent, last = (decoder for _, decoder in decoders._idle)
        old.idle_since_s -= IDLE_S
        last.idle_since_s -= IDLE_S
        decoders._review()
        assert [decoder for _, decoder in decoders._idle] == [recent, last]
        assert decoders._held_bytes == recent.held_bytes + last.held_bytes
        recent.idle_since_s -= IDLE_S
        decoders._review()
        assert [decoder for _, decoder in decoders._idle] == [last]
        assert len(await seen_by(decoders, "abc")) == 3


async def test_an_idle_decoder_gives_its_free_memory_back() -> None:
    out = io.BytesIO()
    column = pa.array([row / 7 for row in range(200_000)])
    pq.write_table(pa.table({str(at): column for at in range(16)}), out)
    async with pool(most=1) as decoders:
        await read(decoders, out.getvalue(), "a.parquet")
        ((_, decoder),) = decoders._idle
        full = decoder.held_bytes
        while decoder.held_bytes > full - (8 << 20):
            await asyncio.sleep(0)
            decoder.weigh()
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]


async def test_a_reader_that_is_cancelled_while_its_decoder_ends_leaves_nothing_behind() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        ((_, decoder),) = decoders._idle
        reading = asyncio.create_task(read(decoders, b"1,2\n", "a.csv"))
        while decoder._answer is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        decoder._fail(EOFError())
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        gc.collect()
    assert not complaints


async def test_a_decoder_that_is_made_ahead_and_dies_is_no_fault_of_the_next_object() -> None:
    async with pool(most=1, reuse="object") as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        assert decoders._spare is not None
        spare = await decoders._spare.number
        os.kill(spare, signal.SIGKILL)
        await decoders._zygote.ended(spare)  # type: ignore[union-attr]
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
    assert not DEATHS


async def test_what_a_decoder_has_loaded_late_the_next_has_from_the_start() -> None:
    out = io.BytesIO()
    fastavro.writer(out, AVRO, [{"a": 1.0}])
    async with pool(most=1, reuse="object") as decoders:
        for _ in range(3):  # of those, the second was made before the first had ended
            async with decoders.lent_alone("s", lambda: False, lambda: None) as decoder:
                assert values(await lent_read(decoder, out.getvalue(), "a.avro", RowOptions()))
        assert decoder.libraries == frozenset()
        assert decoders._libraries >= {"fastavro"}


AVRO = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "double"}]}


def stolen_line(process: int) -> socket.socket:
    """The decoder's end of its socket, as a process that it left behind would have it."""
    folder = Path(f"/proc/{process}/fd")
    number = next(int(each.name) for each in folder.iterdir() if "socket" in str(each.readlink()))
    getfd = ctypes.CDLL(None, use_errno=True).syscall
    return socket.socket(fileno=getfd(438, os.pidfd_open(process), number, 0))  # pidfd_getfd


@pytest.mark.usefixtures("planted")
async def test_the_end_of_a_decoder_is_seen_though_another_process_has_its_socket() -> None:
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        ((_, decoder),) = decoders._idle
        with stolen_line(decoder._number):
            hanging = asyncio.create_task(read(decoders, b"loop", "a.deadly"))
            while decoder._answer is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            os.kill(decoder._number, signal.SIGKILL)
            with pytest.raises(Died, match="signal 9"):
                await hanging
            may_take(decoders, 0.5)
            with pytest.raises(Died, match=r"took too long|less than half"):
                await read(decoders, b"loop", "a.deadly")


async def test_a_decoder_that_speaks_out_of_turn_is_ended() -> None:
    async with pool(most=1) as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        ((_, decoder),) = decoders._idle
        with stolen_line(decoder._number) as line:
            line.send(b"R" + bytes(100))
            while decoder.is_idle:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert await decoders._zygote.ended(decoder._number) == (-signal.SIGKILL, None)  # type: ignore[union-attr]
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
        assert decoders._idle != [("s", decoder)]


async def asked(decoder: Decoder) -> asyncio.Task[Said]:
    """The decoder has the bytes of its object, and is stopped before it gives the rows."""
    task = Task(RowOptions(), claim_of("a.csv"), 4, 0, None)
    assert await decoder.turn(task) == NEXT  # by then it has closed what it had from the zygote
    os.kill(decoder._number, signal.SIGSTOP)  # type: ignore[attr-defined]
    turn = asyncio.create_task(decoder.turn(b"1,2\n"))
    await asyncio.sleep(0)
    return turn


@pytest.mark.parametrize("is_new", [True, False])
async def test_all_decoders_end_with_the_zygote_and_no_object_is_to_blame(is_new: bool) -> None:
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        zygote = decoders._zygote
        assert zygote is not None
        async with decoders.lent_alone("s", lambda: False, lambda: None, new=is_new) as decoder:
            turn = await asked(decoder)
            os.kill(zygote._process.pid, signal.SIGKILL)
            with pytest.raises(Transient, match="that starts decoders was ended"):
                await turn
        assert values(await read(decoders, b"1,2\n", "a.csv")) == [[1, 2]]
    assert not DEATHS


async def test_a_zygote_that_does_nothing_is_ended_and_another_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead_s = 0.0
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + ahead_s)
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        zygote = decoders._zygote
        assert zygote is not None
        os.kill(zygote._process.pid, signal.SIGSTOP)
        reading = asyncio.create_task(read(decoders, b"1,2\n", "a.csv", new=True))
        for _ in range(3):  # until it waits
            await asyncio.sleep(0)
        ahead_s = 2 * FORK_S
        with pytest.raises(Transient, match="did nothing and was ended"):
            await reading
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
        assert decoders._zygote is not zygote


async def test_a_decoder_that_others_kill_has_its_object_tried_once_more() -> None:
    """As the kernel does if the machine runs out of memory."""
    async with pool() as decoders:
        async with decoders.lent_alone("s", lambda: False, lambda: None) as decoder:
            turn = await asked(decoder)
            os.kill(decoder._number, signal.SIGKILL)
            with pytest.raises(Died, match=r"killed by signal 9 \(SIGKILL\)") as died:
                await turn
        assert not died.value.by_object
        assert died.value.poison.code == "too_large"


def open_file(process: int, number: int) -> Path:
    return Path(f"/proc/{process}/fd/{number}").readlink()


def open_files(process: int) -> set[int]:
    return {int(file.name) for file in Path(f"/proc/{process}/fd").iterdir()}


@pytest.mark.parametrize("free", range(5))
async def test_what_the_system_refuses_the_zygote_costs_no_decoder(free: int) -> None:
    """A fork takes five files: two that are sent, two of a socket, and one for its end. `free`: how
    many may still be opened.
    """
    async with pool() as decoders:
        await read(decoders, b"1,2\n", "a.csv")
        zygote = decoders._zygote
        assert zygote is not None
        process = zygote._process.pid
        used = open_files(process)
        unused = [number for number in range(max(used) + 9) if number not in used]
        before = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (unused[free], before[1]))
        with pytest.raises(Transient, match="Too many open files"):
            await read(decoders, b"1,2\n", "a.csv", new=True)
        assert values(await read(decoders, b"3,4\n", "a.csv")) == [[3, 4]]
        resource.prlimit(process, resource.RLIMIT_NOFILE, before)
        assert values(await read(decoders, b"5,6\n", "a.csv", new=True)) == [[5, 6]]
        assert decoders._zygote is zygote
    assert not DEATHS


@pytest.mark.parametrize("pauses", [1, 3, 4])
async def test_a_decoder_that_was_paused_with_the_worker_gets_its_time_three_times_more(
    pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = 0.0
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + ahead_s)
    async with pool() as decoders, decoders.lent_alone("s", lambda: False, lambda: None) as decoder:
        turn = await asked(decoder)
        for _ in range(pauses):
            ahead_s += 2 * LONG_S
            for _ in range(3):  # until the loop has looked at its clock
                await asyncio.sleep(0)
        if pauses < 4:
            os.kill(decoder._number, signal.SIGCONT)
            runs = await turn
            assert isinstance(runs, list)
            assert values(runs) == [[1, 2]]
        else:
            with pytest.raises(Died, match="less than half of its time"):
                await turn


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("word", "states", "most_s"), [(b"loop", b"R", 4_010), (b"sleep", b"S", 1_010)]
)
async def test_a_decoder_that_waits_for_the_processor_gets_four_times_its_time(
    word: bytes, states: bytes, most_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = began_s = time.monotonic()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    async with pool(most=1) as decoders, decoders.lent_alone("s", bool, bool) as decoder:
        decoder._least_s = 1_000
        reading = asyncio.create_task(lent_read(decoder, word, "a.deadly", RowOptions()))
        while not decoder._given_bytes or state_and_ticks(decoder._number)[0] not in states:  # noqa: ASYNC110
            await asyncio.sleep(0)
        while not decoder._overran:
            now_s += 0.4
            for _ in range(3):
                await asyncio.sleep(0)
        assert most_s - 20 < now_s - began_s < most_s
        reading.cancel()
        await asyncio.wait([reading])


@pytest.mark.usefixtures("planted")
async def test_a_decoder_that_waits_for_the_processor_no_more_gets_no_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that computed only at the ends of its times would keep its place for all of them."""
    now_s = time.monotonic()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    async with pool(most=1) as decoders, decoders.lent_alone("s", bool, bool) as decoder:
        decoder._least_s = 1_000
        reading = asyncio.create_task(lent_read(decoder, b"loop", "a.deadly", RowOptions()))
        while state_and_ticks(decoder._number)[1] < 2:  # noqa: ASYNC110 (until it computes)
            await asyncio.sleep(0)
        now_s += 1_000.1
        for _ in range(3):
            await asyncio.sleep(0)
        assert not decoder._overran
        os.kill(decoder._number, signal.SIGSTOP)
        while state_and_ticks(decoder._number)[0] != b"T":  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(3 * 6):
            now_s += 0.4 / 3
            await asyncio.sleep(0)
        assert decoder._overran
        reading.cancel()
        await asyncio.wait([reading])


def mapped(process: int) -> str:
    """The files that a process has in memory."""
    return Path(f"/proc/{process}/maps").read_text()


async def test_a_decoder_of_tables_holds_no_pandas() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1.0, 2.0]}), out)
    async with pool(most=1) as decoders:
        assert values(await read(decoders, out.getvalue(), "a.parquet")) == [[1], [2]]
        ((_, decoder),) = decoders._idle
        assert "/pandas/" not in mapped(decoder._number)


def threads_of(process: int) -> int:
    return len(list(Path(f"/proc/{process}/task").iterdir()))


async def test_a_decoder_of_a_packed_arrow_stream_starts_no_thread() -> None:
    out, table = io.BytesIO(), pa.table({"a": [1.0, 2.0] * 500, "b": [3.0, 4.0] * 500})
    packed_by = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, table.schema, options=packed_by) as writer:
        writer.write_table(table)
    async with pool(most=1) as decoders:
        assert values(await read(decoders, out.getvalue(), "a.arrow")) == [[1, 3], [2, 4]] * 500
        ((_, decoder),) = decoders._idle
        assert threads_of(decoder._number) == 1


async def test_who_waits_for_a_decoder_gets_one_in_turn_and_heads_before_others() -> None:
    order: list[str] = []

    async def one(decoders: Pool, name: str, *, is_head: bool) -> None:
        async with decoders.lent_alone("s", lambda: is_head, lambda: None) as decoder:
            order.append(name)
            await lent_read(decoder, b"1,2\n", "a.csv", RowOptions())

    async with (
        pool(most=1) as decoders,
        asyncio.TaskGroup() as tasks,
        decoders.lent_alone("s", lambda: False, lambda: None),
    ):
        for name in ("a", "b"):
            tasks.create_task(one(decoders, name, is_head=False))
        await asyncio.sleep(0)
        assert not decoders.is_wanted
        tasks.create_task(one(decoders, "head", is_head=True))
        await asyncio.sleep(0)
        assert decoders.is_wanted
        order.append("free")
    assert order == ["free", "head", "a", "b"]
