"""The process that decodes media, so that a library which crashes or hangs takes nothing with it.

Rule: it has no file, no network and no secret of the worker's, only a socket on which it asks for
bytes and says rows. It ends with the worker, or when the worker hangs up. Owner: `media`, which
starts it and ends it.
"""

import io
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from consumers.errors import Poison
from consumers.formats.audio import audio_rows
from consumers.formats.containers import Boxes
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
from consumers.formats.video import video_rows
from consumers.process.parent import end_with_parent

# A 4K frame and its references take 300 MB; address space of the libraries comes on top.
MOST_MEMORY_BYTES: Final = 4 << 30


class Asked(io.RawIOBase):
    """The object: what is read of it is asked for."""

    def __init__(self, channel: Channel, size: int) -> None:
        self._channel = channel
        self._size = size
        self._at = 0
        self.boxes = Boxes()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        stop = min(self._size, self._at + len(buffer))
        if stop <= self._at:
            return 0
        self._channel.send(NEED, packed_range(self._at, stop))
        letter, data = self._channel.receive()
        if letter != DATA or len(data) > len(buffer):
            raise HungUp(f"{len(data)} bytes of {letter!r} where data was asked for")
        buffer[: len(data)] = data
        self.boxes.saw(self._at, data)
        self._at += len(data)
        return len(data)


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


def _rows(task: Task, file: Asked) -> Iterator[Batch]:
    return audio_rows(task, file) if task.kind == "audio" else video_rows(task, file, file.boxes)


if __name__ == "__main__":
    main()
