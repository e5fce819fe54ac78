"""What worker and decoder say to each other, however the messages are carried.

Rule: worker and decoder take turns. The decoder asks for bytes, or gives rows, and then waits for
the worker's answer. So the decoder never decodes more than the byte budget has room for. A small
object takes one turn: its task brings all its bytes, and its last rows bring its end. Small objects
of one stream that wait together take one turn together (small_objects.py).
"""

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.core.rows.origin import selected
from penstock.errors import PenstockError, Poison
from penstock.formats.reading import read_object
from penstock.formats.registry import Claim
from penstock.formats.runs import Pieces, RowOptions, Run
from penstock.formats.source import TAIL_BYTES, Need, RangedSource

# Asks for the next bytes of the object. An empty answer means that there are no more.
NEXT: Final = Need(-1, -1)
# Asks for the object's size (8 bytes, little-endian) and its last bytes.
TAIL: Final = Need(-TAIL_BYTES, 0)
SIZE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Task:
    """One try at one object. Rows below `next_row` were decoded by an earlier try. `rows`: the
    ranges of rows that the reference selects; None: all rows. `whole`: all bytes of the object, if
    the worker has them at hand.
    """

    options: RowOptions
    claim: Claim
    size: int
    next_row: int
    rows: object
    whole: bytes | None = None

    def wants_any(self, start: int, stop: int) -> bool:
        fresh = max(start, self.next_row)
        return fresh < stop and next(selected(self.rows, fresh, stop), None) is not None  # type: ignore[arg-type]


# Before each task: how many bytes its words have, and its object, if it comes with it.
_LENGTHS: Final = struct.Struct("<II")


def tasks_said(tasks: Sequence[Task], former: RowOptions | None) -> list[bytes]:
    """The parts of the message that begins tasks. `former`: the options of the decoder's last task.
    To say the same options again would take longer than all else of a small object.
    """
    parts: list[bytes] = []
    for task in tasks:
        options = None if task.options is former else task.options
        former = task.options
        words = pickle.dumps((options, *task.claim, task.size, task.next_row, task.rows))
        whole = task.whole or b""
        parts += (_LENGTHS.pack(len(words), len(whole)), words, whole)
    return parts


def tasks_heard(message: bytes, former: RowOptions | None) -> list[Task]:
    """For the decoder, which believes its worker."""
    tasks: list[Task] = []
    at = 0
    while at < len(message):
        of_words, of_whole = _LENGTHS.unpack_from(message, at)
        begin = at + _LENGTHS.size
        end = begin + of_words
        at = end + of_whole
        options, *claim, size, next_row, rows = pickle.loads(message[begin:end])
        former = former if options is None else options
        assert former is not None, "the first task brings its options"
        whole = message[end:at] or None
        tasks.append(Task(former, Claim(*claim), size, next_row, rows, whole))
    return tasks


# What a decoder says. `Need`: the bytes that it needs; a list: the rows that it gives; None: the
# task is done.
Said = Need | list[Run] | None

# What becomes of one of several objects: its rows, or why it cannot be read; None: it must be read
# alone.
Answer = list[Run] | Poison | None


class Died(PenstockError):
    """A decoder process died over an object. `by_object`: True if only the object can be the cause:
    it was the decoder's first, and the decoder was ended by us though it had the processor, or died
    of a signal other than SIGKILL. Then the object is answered by the error `poison`; otherwise it
    is tried once more by a new decoder. `signal`: the signal that ended the process; 0: no signal
    ended it.
    """

    def __init__(self, poison: Poison, *, by_object: bool, signal: int = 0) -> None:
        super().__init__(str(poison))
        self.signal = signal
        self.poison = poison
        self.by_object = by_object


class Decoder(Protocol):
    async def turn(self, message: Task | bytes) -> Said:
        """Begin or continue a task. To begin, `message` is the task. To continue, it is the bytes
        that the decoder asked for, or empty if it gave rows. Raises `Poison` if the object cannot
        be read, and `Died` if the decoder dies.
        """
        ...


class Decoders(Protocol):
    def lent(
        self,
        stream: str,
        is_head: Callable[[], bool],
        review: Callable[[], object],
        *,
        new: bool = False,
        task: Task | None = None,
    ) -> AbstractAsyncContextManager[Decoder]:
        """A decoder for one task, as soon as one is free. `stream`: that of the object.
        `is_head`: does this object hold up everything behind it? `review`: a function that is
        called when the wait begins. `new`: True if the decoder must not have had a task before.
        `task`: if it brings its object, it may be decoded with others.
        """
        ...

    def is_proven(self, stream: str) -> bool:
        """Was the last object of this stream read well, in a small part of the time that it may
        take? Then the next one need not wait until objects of others that hang are ended.
        """
        ...

    @property
    def is_wanted(self) -> bool:
        """True if all decoders are lent and a waiting object holds up everything behind it. Then an
        object that has a decoder, but waits for room in the byte budget, should give its decoder
        back.
        """
        ...

    @property
    def used(self) -> float:
        """The share of all decoders that have a task, from 0 to 1."""
        ...

    async def aclose(self) -> None: ...


class AskedSource:
    """The object for the code that decodes it. All bytes come from the worker, by `ask`."""

    def __init__(self, size: int, ask: Callable[[Need], bytes], whole: bytes | None = None) -> None:
        self.size = size
        self._ask = ask
        self._whole = whole
        self._ranges: RangedSource | None = None

    def read(self, start: int, stop: int) -> bytes:
        if self._ranges is None:
            tail = self._ask(TAIL)
            self.size = int.from_bytes(tail[:SIZE_BYTES], "little")
            self._ranges = RangedSource(self.size, tail[SIZE_BYTES:], self._ask)
        return self._ranges.read(start, stop)

    def chunks(self) -> Iterator[bytes]:
        if self._whole is not None:
            yield self._whole
            return
        while chunk := self._ask(NEXT):
            yield chunk


def tail_of(size: int, data: bytes) -> bytes:
    """The worker's answer to `TAIL`."""
    return size.to_bytes(SIZE_BYTES, "little") + data


def decode(
    task: Task, ask: Callable[[Need], bytes], give: Callable[[list[Run]], object]
) -> list[Run]:
    """Decode the object of a task. All complete rows are given before more bytes are asked for.
    Returns the last rows, which are not given.
    """
    pieces = Pieces(give)

    def ask_after_rows(need: Need) -> bytes:
        pieces.flush()
        return ask(need)

    source = AskedSource(task.size, ask_after_rows, task.whole)
    runs = read_object(source, task.options, task.claim, task.wants_any)
    return pieces.take(runs)
