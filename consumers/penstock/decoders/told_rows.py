"""What a decoder says of one object's rows, checked against what the worker knows of the object.

Rule: it is believed only as far as the worker's own options allow it. It may give no more rows and
no longer ones than these, only of their form, and it leaves out no row that is wanted.
"""

import asyncio
from typing import Final

import msgspec

from penstock.core.rows.payload import ROW_COST_BYTES
from penstock.decoders.arrow_messages import MOST_ROW_TIMES
from penstock.decoders.packing import end_and_rest, unpacked
from penstock.decoders.protocol import Task
from penstock.decoders.socket_messages import End
from penstock.formats.plugins_checked import FORMS
from penstock.formats.runs import LEAST_FRAME_WEIGHT, PIECE_ROWS, RowOptions, Run, most_rows

LEAST_ROW_BYTES: Final = 64 << 10
MOST_END_BYTES: Final = 4 << 20
# An object may become so many bytes, or so many times its own: twice what silence may become; or
# the largest rows, as many as a film may have frames.
FREE_MADE_BYTES: Final = 8 << 30
_MOST_MADE: Final = 8_192
_FREE_FRAMES: Final = 4_096


class ToldRows:
    """`size`: that of the object; -1: it is not known yet."""

    def __init__(self, task: Task) -> None:
        self.options, self.size = task.options, task.size
        self._wants = task.wants_any
        self._rows = 0

    def most_made_bytes(self, given_bytes: int) -> int:
        """`given_bytes`: those of the object that the decoder has got."""
        size, options = max(self.size, given_bytes), self.options
        weight = size * max(options.expansion_ratio, ROW_COST_BYTES)
        frames = max(_FREE_FRAMES, weight // LEAST_FRAME_WEIGHT)
        of_frames = frames * (LEAST_ROW_BYTES + options.row_bytes)
        return max(FREE_MADE_BYTES, _MOST_MADE * size, of_frames)

    async def with_end(self, message: memoryview) -> tuple[End, list[Run]]:
        """The end of the object and its last rows. Raises `ValueError`."""
        end_bytes, rest = end_and_rest(message, MOST_END_BYTES)
        end = msgspec.msgpack.decode(end_bytes, type=End)
        runs = await self.runs(rest)
        if end.code is not None and runs:
            raise ValueError("an error with rows")
        return end, runs

    async def runs(self, message: memoryview) -> list[Run]:
        """Raises `ValueError`."""
        runs: list[Run] = []
        options = self.options
        most = options.rows if self.size < 0 else min(options.rows, most_rows(self.size, options))
        for run in unpacked(message, most - self._rows, most_row_bytes(options)):
            if run is None:
                await asyncio.sleep(0)
            else:
                self._check(run)
                runs.append(run)
                if not len(runs) % PIECE_ROWS:
                    await asyncio.sleep(0)
        return runs

    def _check(self, run: Run) -> None:
        first = self._rows
        self._rows += run.rows
        if run.payload is not None:
            if self.options.form not in FORMS[type(run.payload)]:
                raise ValueError(f"rows of the form {type(run.payload).__name__}")
            kept, options = run.kept, self.options
            has_more = kept is not None and (
                (kept.columns is not None and not options.keep)
                or (kept.times is not None and options.time is None)
            )
            if has_more:
                raise ValueError("rows with more than was asked for")
        elif run.error is None and self._wants(first, self._rows):
            raise ValueError("it leaves out rows that are wanted")


def most_row_bytes(options: RowOptions) -> int:
    """What a row has beside its values, its kept columns too, is counted with it."""
    return LEAST_ROW_BYTES + MOST_ROW_TIMES * options.row_bytes
