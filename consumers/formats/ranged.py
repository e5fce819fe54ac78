"""Formats that are read here and there: what they need is fetched, nothing else.

Rule: a reader is written as if the object lay on disk: it calls `read(start, stop)` and yields
runs. It runs on a thread of its own, which stands still whenever bytes are missing or rows are
ready, so that the stage can fetch, or wait for room; of reader and stage only one runs at a time.
The reader knows which rows are wanted and need not read the others. Owner: the stage that
expands objects, one decoder per try; it must `abandon` a decoder that it does not read to its end.
"""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Final, NamedTuple

from consumers.errors import PenstockError, Poison
from consumers.formats.base import RowOptions, Run
from consumers.formats.source import Read, Wanted
from consumers.formats.unforeseen import foreseen

# Asked for with the first request: footers of Parquet, Arrow and zip stand at the end, and a small
# object is in it whole.
TAIL_BYTES: Final = 64 << 10

# Read ahead at most: a request of 8 MiB takes a tenth of a second of most stores.
MOST_AHEAD_BYTES: Final = 8 << 20
LEAST_AHEAD_BYTES: Final = 64 << 10
# A reader that asks for more at a time has a buffer of its own, and reads in several places.
SMALL_BYTES: Final = 256 << 10
# Between two reads so much is fetched in vain rather than by a request of its own.
GAP_BYTES: Final = 64 << 10


class Need(NamedTuple):
    """Bytes to fetch before the decoder can go on."""

    start: int
    stop: int


class Abandoned(BaseException):
    """Raised inside a reader whose rows nobody waits for any more."""


class Ranges:
    """An object as its reader sees it. A read that begins where the last one ended is given ever
    more at a time; at most one such piece is held.
    """

    def __init__(self, size: int, tail: bytes, ask: Callable[[Need], bytes]) -> None:
        self.size = size
        self._ask = ask
        self._tail = (size - len(tail), tail)
        self._piece = (0, b"")
        self._last_stop = -1
        self._ahead_bytes = 0

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the object, as far as it goes."""
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        is_next = 0 <= start - self._last_stop <= GAP_BYTES
        self._last_stop = stop
        for at, data in (self._piece, self._tail):
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        is_small = stop - start <= SMALL_BYTES
        if is_next and is_small:
            ahead_bytes = max(LEAST_AHEAD_BYTES, 2 * self._ahead_bytes)
            self._ahead_bytes = min(MOST_AHEAD_BYTES, ahead_bytes)
        else:
            self._ahead_bytes = 0
        data = self._fetch(start, min(self.size, max(stop, start + self._ahead_bytes)))
        self._piece = (start, data)
        return data[: stop - start]

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, SMALL_BYTES):
            yield self.read(start, start + SMALL_BYTES)

    def _fetch(self, start: int, stop: int) -> bytes:
        at, tail = self._tail
        if start >= at:
            return tail[start - at : stop - at]
        if stop > at:
            return self._ask(Need(start, at)) + tail[: stop - at]
        return self._ask(Need(start, stop))


_Said = Need | list[Run] | PenstockError | BaseException | None


class RangedDecoder:
    """`advance` it until that is None; where it returns a `Need`, advance it with these bytes."""

    def __init__(
        self, read: Read, options: RowOptions, size: int, tail: bytes, wanted: Wanted
    ) -> None:
        self._runs = read(Ranges(size, tail, self._ask), options, wanted)
        self._fail_on_bad_row = options.fail_on_bad_row
        self._rows = 0
        self._replies: SimpleQueue[bytes | None] = SimpleQueue()
        self._said: SimpleQueue[_Said] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def advance(self, data: bytes = b"") -> Need | list[Run] | None:
        """Go on, with the bytes that were needed. Raises `Poison` if the object cannot be read."""
        if self._ended:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ranges", daemon=True)
            self._thread.start()
        else:
            self._replies.put(data)
        said = self._said.get()
        if isinstance(said, BaseException):
            raise said
        return said

    def abandon(self) -> None:
        """Nobody will advance it any more. Returns at once; its thread ends when it next asks."""
        self._ended = True
        self._replies.put(None)

    def _work(self) -> None:
        said: _Said = None
        try:
            for run in self._runs:
                self._check(run)
                self._rows += run.rows
                self._say([run])
        except Abandoned:
            pass
        except Exception as error:  # raised where the reading goes on
            said = foreseen(error)
        except BaseException as error:
            said = error
        self._ended = True
        self._said.put(said)

    def _ask(self, need: Need) -> bytes:
        return self._say(need)

    def _say(self, said: Need | list[Run]) -> bytes:
        self._said.put(said)
        reply = self._replies.get()
        if reply is None:
            raise Abandoned
        return reply

    def _check(self, run: Run) -> None:
        if run.error is not None and self._fail_on_bad_row:
            raise Poison(
                "bad_row", f"row {self._rows}: {run.error} (rows.on_bad_row is fail_object)"
            )
