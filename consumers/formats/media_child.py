"""The process that decodes media, so that a library which crashes or hangs takes nothing with it.

Rule: it has no file, no network and no secret of the worker's, only a socket on which it asks for
bytes and says rows. It ends with the worker, or when the worker hangs up. Owner: `media`, which
starts it and ends it.
"""

import resource
import socket
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from consumers.errors import Poison
from consumers.formats.audio import read_audio
from consumers.formats.base import RowOptions
from consumers.formats.media_wire import (
    DATA,
    DONE,
    FAILED,
    NEED,
    ROWS,
    TASK,
    Batch,
    Channel,
    Failure,
    HungUp,
    Task,
    packed_batch,
    packed_range,
)
from consumers.formats.video import read_video
from consumers.process.parent import end_with_parent

# A 4K frame and its references take 300 MB; address space of the libraries comes on top.
MOST_MEMORY_BYTES: Final = 4 << 30


class Asked:
    """The object: what is read of it is asked for."""

    def __init__(self, channel: Channel, size: int) -> None:
        self._channel = channel
        self.size = size

    def read(self, start: int, stop: int) -> bytes:
        stop = min(self.size, stop)
        if stop <= start:
            return b""
        self._channel.send(NEED, packed_range(start, stop))
        letter, data = self._channel.receive()
        if letter != DATA or len(data) > stop - start:
            raise HungUp(f"{len(data)} bytes of {letter!r} where data was asked for")
        return data

    def chunks(self) -> Iterator[bytes]:
        yield self.read(0, self.size)


def main() -> None:
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        while True:
            letter, body = channel.receive()
            if letter != TASK:
                raise HungUp(f"{letter!r} where a task was expected")
            _serve(channel, msgspec.json.decode(body, type=Task))
    except HungUp:
        return


def _serve(channel: Channel, task: Task) -> None:
    try:
        for batch in _rows(task, Asked(channel, task.size)):
            channel.send(ROWS, *packed_batch(batch))
    except Poison as poison:
        failure = Failure(poison.code, str(poison))
    except MemoryError:
        failure = Failure("too_large", f"to decode it takes more than {MOST_MEMORY_BYTES} bytes")
    else:
        channel.send(DONE)
        return
    channel.send(FAILED, msgspec.json.encode(failure))


def _rows(task: Task, source: Asked) -> Iterator[Batch]:
    options = RowOptions(
        form=task.form,
        pixels=task.pixels,
        row_bytes=task.row_bytes,
        image=task.image,
        fps=task.fps,
        window_ms=task.window_ms,
        hop_ms=task.hop_ms,
    )
    read = read_audio if task.kind == "audio" else read_video
    for run in read(source, options, lambda start, stop: stop > task.skip_rows):
        yield Batch(run.rows, run.payload, run.since_ms)


if __name__ == "__main__":
    main()
