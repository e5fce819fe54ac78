"""The worker's end of one decoder: the tasks that it gets, the rows that it says, its time, and its
end when that is over.

Rule: the time that a decoder may take grows with the bytes that it has received and sent. One that
takes longer, says nonsense or dies never gets another object; what it says is believed only as far
as the worker's own options allow it.
"""

import asyncio
import logging
import os
import random
import signal
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from penstock.decoders import kernel_figures, late_libraries
from penstock.decoders.decoder_process import RANGE, UNREADY
from penstock.decoders.packing import MOST_ERROR_CHARS, parted
from penstock.decoders.protocol import (
    NEXT,
    SIZE_BYTES,
    TAIL,
    Answer,
    Died,
    Said,
    Task,
    tasks_said,
)
from penstock.decoders.socket_messages import (
    DATA,
    ENDED,
    FAILED,
    LAST,
    MORE,
    MOST_CHARS,
    NEED,
    ROWS,
    SEVERAL,
    SHORT_BYTES,
    TAKEN,
    TASK,
    End,
    Message,
    Note,
    boxes,
    heard,
    placed,
    said,
)
from penstock.decoders.system_calls import how_ended
from penstock.decoders.told_rows import FREE_MADE_BYTES, MOST_END_BYTES, ToldRows, most_row_bytes
from penstock.decoders.zygote_client import KILLED_S, Exit, Fork, Zygote
from penstock.errors import ErrorCode, Poison, Unforeseen
from penstock.formats.runs import PIECE_BYTES, RowOptions, Run, shown
from penstock.formats.source import MOST_NEED_BYTES, Need

log = logging.getLogger(__name__)

# If a decoder answered in time, but our event loop was blocked until the time was over, the decoder
# gets this much more time.
PAUSED_S: Final = 1.0
# If the timer of a decoder rings so late, the worker was paused, and perhaps its decoders with it:
# a container that was frozen, a machine that was moved.
_LATE_S: Final = 0.5
# A decoder that computed for less than half of its time was stopped, or waited for the processor or
# for memory: no fault of the object. (In clock ticks for each second.)
_STARVED_TICKS: Final = os.sysconf("SC_CLK_TCK") / 2
# It waits for the processor, or for a disk that holds its memory. One that sleeps or was stopped is
# given up: another decoder does better.
_WAITS_FOR_MACHINE: Final = (b"R", b"D")
_MOST_PAUSES: Final = 3
# Each turn counts as this long, because it takes time of our event loop, too. So a decoder that
# asks for next to nothing, again and again, comes to its end.
_LEAST_TURN_S: Final = 0.001
# So many bytes of rows buy as much time as one byte of the object; and by rows, an object may take
# so many times as long as by its bytes: some ten minutes for a small film of 4,096 frames.
_BYTES_OF_ROWS: Final = 16
_MOST_BY_ROWS: Final = 64
# The largest message, beside one row of the largest size. Most have 2 MiB and a run. It is in no
# budget until it is whole.
_MOST_BYTES: Final = 64 << 20
# An object is quick that takes at most this part of its time: 2 s, if it is small.
_QUICK: Final = 5
# Objects that take one turn together take about this long: others wait for the decoder meanwhile.
_MOMENT_S: Final = 0.05
_MIB: Final = 1 << 20
_MOST_IDLE_TICKS: Final = 5  # 0.05 s
# What an idle decoder has written over, of the memory that it shares with the zygote: 4 to 11 MB
# after small Parquet, Avro, JPEG and audio, mostly 4 to 7 (Private_Dirty of its smaps_rollup).
_WRITTEN_OVER_BYTES: Final = 6 * _MIB
# To weigh a decoder takes six calls of the system, so it is not done behind each small object that
# was read at once: in this time, no more than some 200 MB can be written.
_SMALL_BYTES: Final = 1 * _MIB
_AT_ONCE_S: Final = 0.05
# By ranges, a decoder may read an object so many times over: readers go back, and read ahead what
# they then do not need. Small objects may be read more often.
_MOST_READ: Final = 16
_FREE_BYTES: Final = 64 << 20
# What a request counts at least, since each is one to the store.
_LEAST_READ_BYTES: Final = 16 << 10


class InDecoder(Exception):
    """Carries the traceback of an unforeseen exception in the decoder."""


class PooledDecoder:
    """The worker's end of one decoder. `is_idle`: True if the decoder may be given a task.
    `idle_since_s`: the pool's note. `is_new`: True if it has had no task yet. `libraries`: what it
    says it has loaded late.
    """

    def __init__(self, zygote: Zygote, fork: Fork, s_per_mib: float, least_s: float) -> None:
        number, end, memory = fork.number.result(), fork.end, fork.memory
        end.setblocking(False)
        self.is_idle = self.is_new = self._is_alone = self._is_heard = True
        self.most_together = 1
        self.idle_since_s = 0.0
        self.libraries: frozenset[str] = frozenset()
        self._zygote = zygote
        self._number = number
        self._shared_bytes = kernel_figures.anonymous_bytes(number)
        self._held_bytes: int | None = None
        self._idle_ticks: int | None = None
        self._end = end
        self._inbox, self._outbox = boxes(memory)
        self._s_per_byte, self._least_s = s_per_mib / _MIB, least_s
        self._left_s = self._by_rows_s = self._worked_s = 0.0
        self._overran = self._is_starved = False
        # The bytes of the object that it was given, and has asked for by ranges; those it has said.
        self._given_bytes = self._asked_bytes = self._made_bytes = 0
        # It has asked for the size, and is given it; where the last bytes begin that come with it.
        self._is_asked_size = False
        self._tail_at = -1
        self._options_sent: RowOptions | None = None
        # The end of the object that came with its last rows.
        self._last: End | None = None
        # An error is a result, too: who was cancelled does not ask, and asyncio would complain.
        self._answer: asyncio.Future[Message | Exception] | None = None
        self._ending: asyncio.TimerHandle
        asyncio.get_running_loop().add_reader(end, self._hear)
        self._process = zygote.ended(number)
        self._process.add_done_callback(self._process_ended)

    async def turn(self, what: Task | bytes) -> Said:
        try:
            if self._last is not None:
                end, self._last = self._last, None
                self._finish(end)
                self._learn()
                return None
            if isinstance(what, Task):
                words = tasks_said([what], self._options_sent)
                self._begin(what)
                message = await self._say(TASK, words)
            else:
                if self._is_asked_size:
                    self._told.size = int.from_bytes(what[:SIZE_BYTES], "little")
                    self._tail_at = self._told.size - (len(what) - SIZE_BYTES)
                message = await self._say(DATA, [what])
            return await self._understood(message)
        except (ValueError, struct.error, msgspec.DecodeError) as error:
            raise self._died(f"says nonsense: {error}", "bad_format") from error

    async def together(self, tasks: Sequence[Task]) -> list[Answer]:
        """Decode objects that their tasks bring, in one turn."""
        try:
            words = tasks_said(tasks, self._options_sent)
            nbytes = sum(len(task.whole or b"") for task in tasks)
            # They share the time of one object, and none of them alone can be the cause of a death.
            self._begin(replace(tasks[-1], size=nbytes, whole=None))
            self._is_alone, self._objects = False, len(tasks)
            self._buy(nbytes)
            letter, body = await self._say(TASK, words)
            if letter != SEVERAL:
                raise ValueError(f"{letter!r} in place of several answers")
            parts = zip(tasks, parted(memoryview(body), len(tasks)), strict=True)
            told = [await ToldRows(task).with_end(part) if part else None for task, part in parts]
            answers = [None if each is None else self._answer_of(*each) for each in told]
        except (ValueError, struct.error, msgspec.DecodeError) as error:
            self.is_idle = False
            raise self._died(f"says nonsense: {error}", "bad_format") from error
        self._learn(alone=None in told)
        return answers

    def _answer_of(self, end: End, runs: list[Run]) -> Answer:
        try:
            self._finish(end)
        except Poison as poison:
            return poison
        return runs

    @property
    def was_quick(self) -> bool:
        """Its last object took a small part of the time that it might."""
        return self._worked_s * _QUICK <= self._by_bytes_s + self._by_rows_s

    def close(self) -> None:
        """End the decoder's process at once."""
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        self._inbox.close()
        self._outbox.close()
        self._zygote.drop(self._number)

    @property
    def held_bytes(self) -> int:
        """The memory that is its own, when it was weighed last: at a review, and behind an object
        that was not small.
        """
        return self.weigh() if self._held_bytes is None else self._held_bytes

    def weigh(self) -> int:
        held_bytes = kernel_figures.anonymous_bytes(self._number)
        if not held_bytes:
            # Of a process whose first thread has ended the kernel tells no memory, though other
            # threads go on and hold it. Python ends its first thread last.
            self._expel("its first thread has ended")
        more = held_bytes - self._shared_bytes + kernel_figures.bytes_in_kernel(self._number)
        self._held_bytes = _WRITTEN_OVER_BYTES + max(0, more)
        return self._held_bytes

    def review(self) -> None:
        """Look at an idle decoder: it has nothing to compute."""
        _, ticks = kernel_figures.state_and_ticks(self._number)
        if self._idle_ticks is None:
            self._idle_ticks = ticks
        elif ticks - self._idle_ticks > _MOST_IDLE_TICKS:
            self._expel("it computes without an object")
        self._outbox.empty()
        self.weigh()

    def _expel(self, why: str) -> None:
        self._zygote.kill(self._number)
        self._fail(ValueError(why))

    def _begin(self, task: Task) -> None:
        self._is_alone, self.is_new, self.is_idle = self.is_new, False, False
        self._objects = 1
        self._options_sent = task.options
        self._told = ToldRows(task)
        self._tail_at = -1
        self._idle_ticks = None
        self._given_bytes = self._asked_bytes = self._made_bytes = 0
        self._left_s, self._by_rows_s, self._worked_s = self._least_s, 0.0, 0.0
        self._left_pauses = _MOST_PAUSES
        if task.whole is not None:
            self._buy(len(task.whole))

    async def _understood(self, message: Message) -> Said:
        letter, body = message
        self._is_asked_size = False
        if letter == NEED:
            need = Need(*RANGE.unpack(body))
            self._is_asked_size = need == TAIL
            if need not in (NEXT, TAIL):
                self._check_part(need)
            return need
        if letter == ROWS:
            return await self._told.runs(memoryview(body))
        if letter == LAST:
            self._last, runs = await self._told.with_end(memoryview(body))
            return runs
        if letter != ENDED or len(body) > MOST_END_BYTES:
            raise ValueError(f"{letter!r} of {len(body)} bytes")
        self._finish(msgspec.msgpack.decode(body, type=End))
        return None

    def _learn(self, *, alone: bool = False) -> None:
        """How many such objects are to take the next turn together."""
        in_a_moment = int(_MOMENT_S * self._objects / max(self._worked_s, _LEAST_TURN_S))
        in_a_piece = PIECE_BYTES * self._objects // max(self._made_bytes, 1)
        self.most_together = 1 if alone else max(1, min(in_a_moment, in_a_piece))

    def _finish(self, end: End) -> None:
        self._note(end.notes)
        is_small = self._given_bytes + self._made_bytes <= _SMALL_BYTES * self._objects
        if not is_small or self._worked_s > _AT_ONCE_S:
            self._held_bytes = None
        self.libraries = late_libraries.known(end.libraries)
        self.is_idle = self._is_heard  # it may have been killed behind its last word
        if end.code is None:
            return
        if end.trace:
            raise Unforeseen(end.code, end.message) from InDecoder(end.trace)
        raise Poison(end.code, end.message[:MOST_ERROR_CHARS])

    def _check_part(self, need: Need) -> None:
        nbytes = need.stop - need.start
        self._asked_bytes += max(nbytes, _LEAST_READ_BYTES)
        is_part = 0 <= need.start < need.stop <= self._tail_at and nbytes <= MOST_NEED_BYTES
        if not is_part or self._asked_bytes > max(_FREE_BYTES, self._told.size * _MOST_READ):
            raise ValueError(f"it asks for bytes {need.start} to {need.stop} of {self._told.size}")

    def _note(self, notes: list[Note]) -> None:
        if sum(note.chars for note in notes) > MOST_CHARS:
            raise ValueError("log lines that are too long")
        for note in notes:
            if note.about:
                self._told.options.notices.once(note.text, about=note.about)
            else:
                log.log(min(note.level, logging.ERROR), "%s", note.text)

    def _buy(self, nbytes: int) -> None:
        """Time for bytes of the object that it is given for the first time."""
        before = self._given_bytes
        size = self._told.size
        self._given_bytes += nbytes if size < 0 else min(nbytes, size - before)
        self._left_s += (self._given_bytes - before) * self._s_per_byte

    def _buy_by_rows(self, nbytes: int) -> None:
        """Less time for what it makes of the object, and only so much in sum: a decoder must not
        live for ever by what it gives. It cannot save up time: it never has more than all bytes of
        the object buy.
        """
        most_s = self._by_bytes_s
        more_s = min(
            nbytes * self._s_per_byte / _BYTES_OF_ROWS,
            most_s - self._left_s,
            most_s * _MOST_BY_ROWS - self._by_rows_s,
        )
        if more_s > 0:
            self._left_s += more_s
            self._by_rows_s += more_s

    @property
    def _by_bytes_s(self) -> float:
        return self._least_s + self._given_bytes * self._s_per_byte

    async def _say(self, letter: bytes, parts: Sequence[bytes]) -> Message:
        left = sum(map(len, parts))
        if letter == DATA:
            self._buy(left)
        if left <= SHORT_BYTES:
            message = await self._exchange(b"".join(said(letter, parts)))
        else:
            for nbytes in self._inbox.filled(parts):
                left -= nbytes
                message = await self._exchange(placed(MORE if left else letter, nbytes))
                if left and message.letter != TAKEN:
                    raise ValueError(f"{message.letter!r} in place of the next piece")
        if message.letter == FAILED:
            how = f"failed: {shown(bytes(message.body))!r}"
            raise self._died(how, "unavailable", is_excused=True)
        return await self._rest_of(message) if message.letter == MORE else message

    async def _rest_of(self, message: Message) -> Message:
        """A message that comes in several pieces, of which this is the first."""
        whole = bytearray()
        most_bytes = _MOST_BYTES + most_row_bytes(self._told.options)
        while message.letter == MORE:
            whole += message.body
            if len(whole) > most_bytes:
                raise self._died(
                    f"gave a Run of more than {most_bytes} bytes (64 MiB and 8 times "
                    "limits.row_bytes); its parser must give such rows in several Runs",
                    "too_large",
                )
            message = await self._exchange(b"".join(said(TAKEN, [])))
        whole += message.body
        return Message(message.letter, whole)

    async def _exchange(self, message: bytes) -> Message:
        loop = asyncio.get_running_loop()
        began_s, left_s = loop.time(), self._left_s
        self._answer = answer = loop.create_future()
        paused_s = max(PAUSED_S, left_s)
        ends_s = began_s + max(0.0, left_s)
        self._ending = loop.call_at(ends_s, self._end_overrun, began_s, paused_s, _MOST_PAUSES)
        try:
            if not self._is_heard:
                raise EOFError
            self._end.send(message)
            reply: Message | Exception = await answer
            if isinstance(reply, Exception):
                raise reply
        except (EOFError, OSError) as error:
            raise await self._ended() from error
        finally:
            self._ending.cancel()
            self._answer = None
        spent_s = loop.time() - began_s
        self._worked_s += spent_s
        # If an answer is here although the decoder's time is over, the answer came in time and only
        # our event loop was blocked. Not again and again: one that answers just behind the end of
        # its time, while the loop is busy, would live on.
        is_late = spent_s > left_s
        if is_late and not self._may_wait(self._worked_s):
            self._left_pauses -= 1
            if self._left_pauses < 0:
                self._overran = True
                self._zygote.kill(self._number)
                raise await self._ended()
        self._left_s = PAUSED_S if is_late else max(0.0, left_s - max(spent_s, _LEAST_TURN_S))
        self._made_bytes += len(reply.body)
        most_bytes = FREE_MADE_BYTES
        if self._made_bytes > most_bytes:
            most_bytes = self._told.most_made_bytes(self._given_bytes)
        if self._made_bytes > most_bytes:
            raise self._died(
                f"made more than {most_bytes} bytes of rows, the most that "
                "limits.row_bytes and limits.expansion_ratio allow an object of this size",
                "too_large",
            )
        self._buy_by_rows(len(reply.body))
        return reply

    def _hear(self) -> None:
        try:
            message = self._end.recv(SHORT_BYTES + 2)
            if not message:
                raise EOFError
            if self._answer is None or self._answer.done():  # it was not its turn
                raise ValueError("a message that was not asked for")
            self._answer.set_result(heard(message, self._outbox))
        except BlockingIOError:
            return
        except (EOFError, OSError, ValueError) as error:
            self._zygote.kill(self._number)  # it may have closed its end, and go on
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Listen to the decoder no more."""
        asyncio.get_running_loop().remove_reader(self._end)
        self.is_idle = self._is_heard = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(error)

    def _process_ended(self, _: asyncio.Future[Exit]) -> None:
        # What it said last counts. Then nothing more is waited for, even if another process has the
        # decoder's end of the socket.
        if self._end.fileno() >= 0:
            self._hear()
            self._fail(EOFError())

    def _end_overrun(self, began_s: float, paused_s: float, pauses: int) -> None:
        """`began_s`: when its turn began. `paused_s`: how much longer it may take if the worker was
        paused, and `pauses`: how often. If it waits for the machine, it is looked at again at times
        that it cannot know, since one that computed only then would seem to wait always.
        """
        if self._answer is not None and self._answer.done():
            return  # our event loop was blocked, and both came in one turn of it
        loop = asyncio.get_running_loop()
        state, ticks = kernel_figures.state_and_ticks(self._number)
        worked_s = self._worked_s + loop.time() - began_s
        self._is_starved = self._is_alone and ticks < worked_s * _STARVED_TICKS
        is_late = loop.time() - self._ending.when() > _LATE_S
        is_waiting = self._is_starved and state in _WAITS_FOR_MACHINE
        if is_late and pauses:
            more_s, pauses = paused_s, pauses - 1
        elif is_waiting and self._may_wait(worked_s):
            more_s = random.uniform(0, 2 * PAUSED_S)
        else:
            self._overran = True
            self._zygote.kill(self._number)
            self._fail(EOFError())
            return
        self._ending = loop.call_later(more_s, self._end_overrun, began_s, paused_s, pauses)

    def _may_wait(self, worked_s: float) -> bool:
        """In all turns together, too: else one that sleeps until its time is nearly over, again and
        again, would live for ever.
        """
        return worked_s < (1 + _MOST_PAUSES) * (self._by_bytes_s + self._by_rows_s)

    async def _ended(self) -> Died:
        await asyncio.wait([self._process], timeout=KILLED_S)
        code, call = self._process.result() if self._process.done() else Exit(-signal.SIGKILL)
        if self._overran and self._is_starved:
            how = "was ended, as it got the processor for less than half of its time"
            return self._died(how, "unavailable", code, is_excused=True)
        if self._overran:
            return self._died(
                "took too long and was ended (limits.decode_ms_per_mib)", "too_large", code
            )
        if (refused := how_ended(code, call)) is not None:
            return self._died(refused, "bad_format", code)
        if code == UNREADY:
            how = "could not begin, as the system refused it what bounds it"
            return self._died(how, "unavailable", is_excused=True)
        if code >= 0:  # it ended by itself, and not over the object: nothing killed it
            return self._died(f"ended with exit code {code}", "bad_format", is_excused=True)
        # The kernel kills a decoder if the machine runs out of memory, perhaps by what others take.
        is_excused = code == -signal.SIGKILL
        why: ErrorCode = "too_large" if is_excused else "bad_format"
        how = f"was killed by signal {-code} ({kernel_figures.signal_name(-code)})"
        return self._died(how, why, code, is_excused=is_excused)

    def _died(self, how: str, why: ErrorCode, code: int = 0, *, is_excused: bool = False) -> Died:
        by_object = self._is_alone and not is_excused
        return Died(Poison(why, f"the decoder {how}"), by_object=by_object, signal=-code)
