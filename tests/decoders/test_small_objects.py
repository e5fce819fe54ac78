"""Small objects that take one turn with a decoder together: each has its own rows, or its own
error, whatever the others are and whatever the decoder says.
"""

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.core.rows.payload import Matrix
from penstock.decoders.decoder_process import RANGE
from penstock.decoders.packing import joined, packed, with_end
from penstock.decoders.pool import SHARED_S, Pool, Reuse
from penstock.decoders.protocol import NEXT, Answer, Died, Said, Task
from penstock.decoders.small_objects import MOST_BYTES, SmallObjects
from penstock.decoders.socket_messages import LAST, MOST_CHARS, NEED, ROWS, SEVERAL
from penstock.errors import Poison
from penstock.formats.registry import Claim, claim_of
from penstock.formats.runs import PIECE_ROWS, RowOptions, Run
from tests.decoders.test_pool import DEATHS, pool, values
from tests.support.waiting import until

OPTIONS = RowOptions()


def task(data: bytes, key: str = "a.csv", options: RowOptions = OPTIONS) -> Task:
    claim = Claim(key, "deadly", "any") if key.endswith(".deadly") else claim_of(key)
    return Task(options, claim, len(data), 0, None, whole=data)


def npy(rows: int) -> bytes:
    out = io.BytesIO()
    np.save(out, np.ones((rows, 16), np.float32))
    return out.getvalue()


async def told(decoders: Pool, tasks: Sequence[Task]) -> list[Answer]:
    async with decoders.lent_alone("s", bool, bool) as decoder:
        return await decoder.together(tasks)


@pytest.mark.usefixtures("planted")
async def test_each_object_has_its_own_rows_or_its_own_error() -> None:
    second = RowOptions(columns=[1])
    tasks = [
        task(b"1,2\n3,4\n"),
        task(b"\x1f\x8bdamaged", "b.csv.gz"),
        task(b"5,6\n", options=second),
        task(b"7,8\n", options=second),
        task(b"raise", "c.deadly"),
        task(b"9,10\n"),
    ]
    async with pool(most=1) as decoders:
        answers = await told(decoders, tasks)
        assert await told(decoders, tasks[:2]) != []  # it is there for more
    rows = [values(answer) if isinstance(answer, list) else answer for answer in answers]
    assert isinstance(rows[1], Poison)
    assert rows[4] is None  # it has given rows before its error
    assert [rows[0], *rows[2:4], *rows[5:]] == [
        [[1.0, 2.0], [3.0, 4.0]],
        [[6.0]],
        [[8.0]],
        [[9.0, 10.0]],
    ]


async def test_an_object_of_many_rows_or_that_asks_for_bytes_is_to_be_read_alone() -> None:
    many = npy(40_000)
    asks = Task(OPTIONS, claim_of("a.parquet"), 1_000, 0, None, whole=b"PAR1")
    async with pool(most=1) as decoders:
        answers = await told(decoders, [task(b"1,2\n"), task(many, "a.npy"), asks, task(b"3,4\n")])
    first, *others, last = answers
    assert others == [None, None]
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert values(first + last) == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.usefixtures("planted")
async def test_none_of_several_is_to_blame_for_the_end_of_their_decoder() -> None:
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match="SIGSEGV") as died:
            await told(decoders, [task(b"1,2\n"), task(b"segfault", "a.deadly")])
        assert not died.value.by_object
        assert not decoders._idle


def of_end(end: dict[str, Any], rows: int) -> list[bytes | memoryview]:
    runs = [Run(rows, Matrix(np.ones((rows, 2), np.float32)))] if rows else []
    return with_end(msgspec.msgpack.encode(end), runs)


def lies() -> Iterator[tuple[str, bytes]]:
    good, bad = of_end({"notes": []}, 1), of_end({"notes": [], "code": "bad_row"}, 1)
    two = b"".join(joined([good, good]))
    yield "rows", ROWS + b"=" + b"".join(packed([]))
    yield "three", SEVERAL + b"=" + b"".join(joined([good, good, good]))
    yield "more", SEVERAL + b"=" + two + bytes(64)
    yield "less", SEVERAL + b"=" + two[:-64]
    yield "nothing", SEVERAL + b"="
    yield "a length", SEVERAL + b"=" + struct.pack("<II", 2**32 - 1, 64) + bytes(120)
    yield "an error with rows", SEVERAL + b"=" + b"".join(joined([good, bad]))
    yield "an end", SEVERAL + b"=" + b"".join(joined([good, of_end({"notes": [], "x": 1}, 1)]))
    long = of_end({"notes": [{"level": 40, "text": "x" * MOST_CHARS}] * 2}, 1)
    yield "log lines", SEVERAL + b"=" + b"".join(joined([good, long]))
    yield "an object's end", LAST + b"=" + b"".join(good)
    yield "a question", NEED + b"=" + RANGE.pack(*NEXT)
    many = of_end({"notes": []}, 1_001)
    yield "too many rows", SEVERAL + b"=" + b"".join(joined([many, good]))


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("lie", [lie for _, lie in lies()], ids=[name for name, _ in lies()])
async def test_what_a_decoder_says_of_several_objects_is_not_believed(lie: bytes) -> None:
    few = RowOptions(rows=1_000)
    async with pool(most=1) as decoders:
        with pytest.raises(Died, match=r"says nonsense") as died:
            await told(decoders, [task(b"say " + lie, "a.deadly", few), task(b"1,2\n")])
        assert not died.value.by_object
        assert not decoders._idle


@pytest.mark.usefixtures("planted")
async def test_a_decoder_that_answers_several_objects_twice_gets_no_other() -> None:
    # Its second answer comes while the worker still looks at the first.
    runs = [Run(1, None, error="x")] * (3 * PIECE_ROWS)
    end = with_end(msgspec.msgpack.encode({"notes": []}), runs)
    lie = SEVERAL + b"=" + b"".join(joined([end, end]))
    async with pool(most=1) as decoders:
        first, second = await told(decoders, [task(b"say twice " + lie, "a.deadly"), task(b"1\n")])
        assert isinstance(first, list)
        assert isinstance(second, list)

        async def is_expelled() -> bool:
            return not any(decoder.is_idle for _, decoder in decoders._idle)

        await until(is_expelled, lambda: "a decoder that said what was not asked for is ended")


async def answered(decoders: Pool, one: Task, stream: str) -> Answer:
    """The rows of an object, by as many tries as it gets in a worker."""
    for new in (False, True):
        runs: list[Run] = []
        try:
            async with decoders.lent(stream, bool, bool, new=new, task=one) as decoder:
                message = await decoder.turn(one)
                while message is not None:
                    runs += message if isinstance(message, list) else []
                    message = await decoder.turn(b"")
                return runs
        except Died as died:
            if died.by_object or new:
                return died.poison
        except Poison as poison:
            return poison
    raise AssertionError


def damages() -> Iterator[tuple[str, bytes]]:
    one = of_end({"notes": []}, 1)
    yield "an answer too many", b"say " + SEVERAL + b"=" + b"".join(joined([one] * 5))
    long = of_end({"notes": [{"level": 40, "text": "x" * MOST_CHARS}] * 2}, 1)
    yield "log lines", b"say " + SEVERAL + b"=" + b"".join(joined([one, one, one, long]))
    yield "none is answered", b"say " + SEVERAL + b"=" + struct.pack("<I", 0) * 4
    yield "half of one", b"say " + SEVERAL + b"=" + b"".join(joined([one] * 4))[:-64]
    yield "its own end", b"say " + LAST + b"=" + b"".join(one)
    yield "a question", b"say " + NEED + b"=" + RANGE.pack(*NEXT)
    for word in ("segfault", "exit", "close end", "raise", "memory", "busy"):
        yield word, word.encode()


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("word", [w for _, w in damages()], ids=[name for name, _ in damages()])
async def test_whatever_one_of_several_does_all_others_have_their_own_rows(
    word: bytes, place: int
) -> None:
    tasks = [task(b"%d\n" % number) for number in range(8)]
    tasks[place] = task(word, "a.deadly")
    async with pool(most=1) as decoders:
        async with decoders.lent_alone("s", bool, bool) as decoder:
            assert await decoder.turn(tasks[7]) != []
            assert await decoder.turn(b"") is None
            decoder.most_together = 4  # however long it took
            reading = [asyncio.create_task(answered(decoders, each, "s")) for each in tasks]
            reading.append(asyncio.create_task(answered(decoders, task(b"9\n"), "t")))
            await asyncio.sleep(0)
        answers = [await each for each in reading]
    if word == b"segfault":  # with the others, and by a new one
        assert DEATHS == ["SIGSEGV"] * 2
    bad = answers.pop(place)
    assert isinstance(bad, Poison) or word.startswith((b"say", b"busy", b"raise"))
    left = [*range(8), 9]
    left.pop(place)
    assert [values(answer) for answer in answers if isinstance(answer, list)] == [
        [[number]] for number in left
    ]


@pytest.mark.usefixtures("planted")
async def test_others_of_its_turn_do_not_wait_for_one_that_hangs_once_their_decoder_is_ended() -> (
    None
):
    tasks = [task(b"sleep", "a.deadly"), *[task(b"%d\n" % number) for number in range(7)]]
    async with pool(most=2) as decoders:
        alone = decoders.lent_alone
        async with alone("s", bool, bool), alone("s", bool, bool) as decoder:
            assert await decoder.turn(tasks[7]) != []
            assert await decoder.turn(b"") is None
            decoder.most_together = 4
            decoder._least_s = 0.1  # all others have longer than any test takes
            reading = [asyncio.create_task(answered(decoders, each, "s")) for each in tasks]
            await asyncio.sleep(0)
        answers = [await each for each in reading[1:]]
        assert [values(answer) for answer in answers if isinstance(answer, list)] == [
            [[number]] for number in range(7)
        ]
        assert not reading[0].done()
        reading[0].cancel()
        await asyncio.gather(reading[0], return_exceptions=True)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("reuse", ["stream", "object"])
async def test_what_one_of_several_says_for_others_reaches_no_further_than_its_decoder(
    reuse: Reuse,
) -> None:
    """No lie can be seen in it: it has an answer for each."""
    forged = of_end({"notes": []}, 1)
    several = SEVERAL + b"=" + b"".join(joined([forged] * 4))
    own = LAST + b"=" + b"".join(forged)
    lie = several if reuse == "stream" else own
    tasks = [task(b"%d\n" % number) for number in range(8)]
    tasks[3] = task(b"say " + lie, "a.deadly")
    async with pool(most=1, reuse=reuse) as decoders:
        async with decoders.lent_alone("s", bool, bool) as decoder:
            await decoder.turn(tasks[7])
            await decoder.turn(b"")
            if reuse == "stream":
                decoder.most_together = 4
            streams = ["s"] * 8 + ["t"]
            works = map(answered, [decoders] * 9, [*tasks, tasks[7]], streams)
            reading = [asyncio.create_task(each) for each in works]
            await asyncio.sleep(0)
        answers = [await each for each in reading]
    rows = [values(answer) for answer in answers if isinstance(answer, list)]
    own_rows = [[[number]] for number in [*range(8), 7]]
    together = 4 if reuse == "stream" else 1
    lied = range(4 - together, 4)
    assert [rows[number] for number in lied] == [[[1.0, 1.0]]] * together
    assert [row for number, row in enumerate(rows) if number not in lied] == [
        row for number, row in enumerate(own_rows) if number not in lied
    ]


class Told:
    """A decoder that answers each object by its own bytes, and knows what came together."""

    def __init__(self, most_together: int) -> None:
        self.most_together = most_together
        self.turns: list[list[bytes]] = []
        self.dies = False

    async def turn(self, message: Task | bytes) -> Said:
        if isinstance(message, bytes):
            return None
        self.turns.append([message.whole or b""])
        answer = self._answer(message)
        if isinstance(answer, Poison):
            raise answer
        return answer

    async def together(self, tasks: Sequence[Task]) -> list[Answer]:
        self.turns.append([each.whole or b"" for each in tasks])
        await asyncio.sleep(0)
        if self.dies:
            raise Died(Poison("bad_format", "it died"), by_object=False)
        return [self._answer(each) for each in tasks]

    def _answer(self, one: Task) -> Answer:
        if one.whole == b"bad":
            return Poison("bad_format", "bad")
        if one.whole == b"large" and len(self.turns[-1]) > 1:
            return None
        return [Run(1, None, error=(one.whole or b"").decode())]


class Stand:
    """One decoder, and objects that wait for it."""

    def __init__(self, most_together: int = 8, *, is_shared: bool = False) -> None:
        self.decoder = Told(most_together)
        self.free = asyncio.Semaphore()
        self.heads: list[Callable[[], bool]] = []
        self.new: list[bool] = []
        self.small = SmallObjects(self._lend, lambda: is_shared)  # type: ignore[arg-type]

    @asynccontextmanager
    async def _lend(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
    ) -> AsyncIterator[Told]:
        self.heads.append(is_head)
        self.new.append(new)
        async with self.free:
            yield self.decoder

    async def read(self, data: bytes, stream: str = "s", *, head: bool = False) -> str:
        async with self.small.lent(stream, lambda: head, bool, task(data)) as decoder:
            try:
                runs = await decoder.turn(task(data))
            except Poison as poison:
                return f"error: {poison}"
            assert isinstance(runs, list)
            assert await decoder.turn(b"") is None
            return str(runs[0].error)

    async def together(self, *objects: bytes) -> list[str]:
        """Read objects that come while the decoder has another."""
        async with self.free:
            reading = [asyncio.create_task(self.read(each)) for each in objects]
            await asyncio.sleep(0)
        return [await each for each in reading]


async def test_what_waits_for_a_decoder_together_takes_one_turn_and_some_are_left_for_another() -> (
    None
):
    stand = Stand()
    assert await stand.together(*[b"%d" % number for number in range(8)]) == list("01234567")
    assert [len(turn) for turn in stand.decoder.turns] == [4, 2, 1, 1]
    assert not stand.small._waiting


async def test_an_object_without_company_waits_for_none() -> None:
    stand = Stand()
    assert [await stand.read(b"a"), await stand.read(b"b")] == ["a", "b"]
    assert stand.decoder.turns == [[b"a"], [b"b"]]


@pytest.mark.parametrize(
    ("most_together", "is_shared", "sizes"),
    [(3, False, [3, 3, 1, 1]), (1, False, [1] * 8), (8, True, [1] * 8)],
)
async def test_the_decoder_and_other_streams_bound_how_many_take_a_turn(
    most_together: int, is_shared: bool, sizes: list[int]
) -> None:
    stand = Stand(most_together, is_shared=is_shared)
    assert await stand.together(*[b"%d" % number for number in range(8)]) == list("01234567")
    assert [len(turn) for turn in stand.decoder.turns] == sizes


async def test_no_more_bytes_come_together_than_an_inbox_takes() -> None:
    stand = Stand()
    large = b"x" * (MOST_BYTES // 3)
    await stand.together(*[large] * 10)
    assert max(len(turn) for turn in stand.decoder.turns) == 3


async def test_of_objects_together_each_has_its_own_end() -> None:
    stand = Stand()
    found = await stand.together(b"a", b"bad", b"large", b"d", b"e", b"f", b"g", b"h")
    assert found == ["a", "error: bad", "large", *"defgh"]
    assert [b"large"] in stand.decoder.turns


async def test_after_the_end_of_their_decoder_all_are_decoded_alone_by_new_ones() -> None:
    stand = Stand()
    stand.decoder.dies = True
    assert await stand.together(*[b"%d" % number for number in range(6)]) == list("012345")
    together = sum(len(turn) for turn in stand.decoder.turns if len(turn) > 1)
    assert sum(stand.new) == together == 5


@pytest.mark.parametrize("number", range(6))
async def test_an_object_that_is_given_up_keeps_no_other_waiting(number: int) -> None:
    stand = Stand(most_together=2)
    for turns in range(8):  # of the event loop, before it is given up
        async with stand.free:
            reading = [asyncio.create_task(stand.read(b"%d" % each)) for each in range(6)]
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        reading[number].cancel()
        found = await asyncio.gather(*reading, return_exceptions=True)
        left = [each for each in found if not isinstance(each, asyncio.CancelledError)]
        assert left in ([*"012345"], [each for each in "012345" if each != str(number)])
        assert not stand.small._waiting


async def test_the_first_that_waits_is_urgent_if_any_of_them_is() -> None:
    stand = Stand()
    async with stand.free:
        first = asyncio.create_task(stand.read(b"a"))
        await asyncio.sleep(0)
        assert not stand.heads[0]()
        second = asyncio.create_task(stand.read(b"b", head=True))
        await asyncio.sleep(0)
        assert stand.heads[0]()
    assert [await first, await second] == ["a", "b"]


async def test_streams_do_not_come_together() -> None:
    stand = Stand()
    async with stand.free:
        reading = [asyncio.create_task(stand.read(b"a", stream)) for stream in ("s", "t") * 4]
        await asyncio.sleep(0)
    for each in reading:
        await each
    assert sum(map(len, stand.decoder.turns)) == 8
    assert max(map(len, stand.decoder.turns)) == 2


async def test_streams_share_decoders_for_a_while_after_another_needed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    async with pool(most=1) as decoders:
        for stream, is_shared in (("s", False), ("s", False), ("t", True), ("t", True)):
            async with decoders.lent_alone(stream, bool, bool):
                assert decoders._is_shared() is is_shared
        now_s += SHARED_S
        assert not decoders._is_shared()
