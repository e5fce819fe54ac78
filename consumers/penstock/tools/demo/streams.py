"""What the demo's streams write and announce: rows in several formats, or pictures.

Rule: object `number` of stream `index` depends on these two numbers alone. Each stream writes at
its own pace (open loop), and skips an object if it is late or too many rows wait, like a camera
with a full memory.
"""

import asyncio
import gzip
import io
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

import numpy as np

from penstock.adapters.kafka.sink import KafkaSink
from penstock.formats.pictures.pixels import png
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference
from penstock.ports import Outgoing, Sink
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.tools.demo.progress import DemoProgress, DemoStream
from penstock.tools.demo.services import DemoPlace

Form = Literal["csv", "csv.gz", "ndjson", "tar.gz"]

COLUMNS = 16  # both the embedded model and the stack's model take rows of 16 numbers
ROWS = (8, 60)
TAR_EVERY = 8
TAR_MEMBERS = 3
CAMERAS_PER_SITE = 4
SEED = 20_260
# zlib's fastest level. At a higher level, compression would be half of the work for an object.
PACKED = 1
# The texts of all numbers are made once. If each object formatted its numbers again, the demo
# itself would be the bottleneck.
_NUMBERS = [str(number / 1000) for number in range(-2_999, 3_000)]
_FORMS: tuple[Form, ...] = ("csv", "csv.gz", "ndjson", "csv")

# The pictures of `demo --frames` and `--scenes`: the size of a picture, and the colour, the size
# and the step of the bright spot that crosses it. Sizes and steps are in pixels.
FRAME_FORM: Final = "png"
FRAME_HEIGHT: Final = 96
FRAME_WIDTH: Final = 128
FRAME_STEP: Final = 3
BRIGHT: Final = (255, 236, 200)
BRIGHT_SIZE: Final = (14, 22)

# If a stream is later than this, it skips the object.
LATE_S = 5.0
# At most this many rows of a partition may be announced before their answers are seen, so that
# every answer is read before the embedded broker drops it. The broker keeps 5 MB of each partition,
# and an answer takes some 60 bytes there (compressed from 320). There is room for the answers that
# a new worker repeats, too.
ROWS_AHEAD = 30_000


@dataclass(frozen=True)
class Made:
    """An object, ready to be written."""

    key: str
    body: bytes
    rows: int


def stream_name(index: int) -> str:
    site, camera = divmod(index, CAMERAS_PER_SITE)
    return f"site-{site + 1}/cam-{camera + 1}"


def form(index: int, number: int) -> Form:
    """The form of object `number` of stream `index`. Every fourth stream sends an archive now and
    then.
    """
    kind = index % len(_FORMS)
    return "tar.gz" if kind == 0 and number % TAR_EVERY == TAR_EVERY - 1 else _FORMS[kind]


def forms(index: int) -> str:
    """All forms in which a stream sends objects, as a text for people."""
    return ", ".join(dict.fromkeys(form(index, number) for number in range(TAR_EVERY)))


def make(index: int, number: int) -> Made:
    kind = form(index, number)
    random = np.random.default_rng([SEED, index, number])
    rows = int(random.integers(*ROWS, endpoint=True))
    cells = random.integers(len(_NUMBERS), size=(rows, COLUMNS)).tolist()
    table = [[_NUMBERS[cell] for cell in row] for row in cells]
    return Made(f"{stream_name(index)}/{number:06}.{kind}", _encoded(kind, table), rows)


def _encoded(kind: Form, table: list[list[str]]) -> bytes:
    lines = (",".join(row) for row in table)
    if kind == "ndjson":
        return "".join(f"[{line}]\n" for line in lines).encode()
    if kind == "tar.gz":
        return gzip.compress(_archive(table), PACKED, mtime=0)
    body = "".join(f"{line}\n" for line in lines).encode()
    return gzip.compress(body, PACKED, mtime=0) if kind == "csv.gz" else body


def _archive(table: list[list[str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in range(TAR_MEMBERS):
            body = _encoded("csv", table[member::TAR_MEMBERS])
            header = tarfile.TarInfo(f"part-{member}.csv")
            header.size = len(body)
            archive.addfile(header, io.BytesIO(body))
    return buffer.getvalue()


def frame(index: int, number: int) -> Made:
    """A picture: the sky, the road of this camera, and something bright that crosses it."""
    image = np.empty((FRAME_HEIGHT, FRAME_WIDTH, 3), np.uint8)
    image[:] = np.linspace((90, 120, 150), (60, 80, 90), FRAME_HEIGHT)[:, None].astype(np.uint8)
    # The colour of the road tells a person which camera it is.
    horizon = FRAME_HEIGHT // 3 + 4 * (index % 4)
    image[horizon:] = (40 + 7 * (index * 5 % 13), 60 + 5 * (index * 7 % 11), 50)
    top = horizon + 6 + (11 * index) % 20
    left = (FRAME_STEP * number + 29 * index) % (FRAME_WIDTH - BRIGHT_SIZE[1])
    image[top : top + BRIGHT_SIZE[0], left : left + BRIGHT_SIZE[1]] = BRIGHT
    return Made(f"{stream_name(index)}/{number:06}.{FRAME_FORM}", png(image).body, 1)


class DemoStreams:
    """Runs all streams. During `run`, each stream writes and announces its objects until the end,
    or until `stop`.
    """

    def __init__(
        self,
        place: DemoPlace,
        sink: Sink,
        progress: DemoProgress,
        rate_hz: float,
        partitions: int,
        make: Callable[[int, int], Made],
    ) -> None:
        """`make`: a function that makes an object from the stream's index and the object's
        number.
        """
        self._make = make
        self._place = place
        self._sink = sink
        self._progress = progress
        self._rate_hz = rate_hz
        self._partitions = partitions
        self._made: list[asyncio.Queue[tuple[int, Made, float]]] = [
            asyncio.Queue() for _ in range(partitions)
        ]
        sharing = -(-len(progress.streams) // partitions)
        self._rows_ahead = max(2 * ROWS[1], ROWS_AHEAD // sharing)

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        started_s = time.time()
        async with asyncio.TaskGroup() as senders:
            sending = [
                senders.create_task(self._announce(partition, queue))
                for partition, queue in enumerate(self._made)
            ]
            async with asyncio.TaskGroup() as beats:
                for index, stream in enumerate(self._progress.streams):
                    beats.create_task(self._beat(index, stream, started_s, seconds, stop))
            for queue in self._made:
                await queue.join()
            for task in sending:
                task.cancel()

    async def _beat(
        self, index: int, stream: DemoStream, started_s: float, seconds: float, stop: asyncio.Event
    ) -> None:
        # Streams start at times spread over the period, as independent cameras do.
        late_s = index / len(self._progress.streams) / self._rate_hz
        for number in count():
            after_s = late_s + number / self._rate_hz
            if after_s >= seconds or await is_set_by(stop, started_s + after_s):
                return
            is_late = time.time() - started_s - after_s > LATE_S
            if is_late or stream.rows_ahead > self._rows_ahead:
                stream.left_out += 1
                # Without this, many late objects would block the event loop for long.
                await asyncio.sleep(0)
            else:
                await self._send(index, self._make(index, number), started_s + after_s)

    async def _send(self, index: int, made: Made, due_s: float) -> None:
        await self._place.write(made.key, made.body)
        self._made[index % self._partitions].put_nowait((index, made, due_s))

    async def _announce(
        self, partition: int, queue: asyncio.Queue[tuple[int, Made, float]]
    ) -> None:
        """Announce each object as soon as it is written. Objects that are written while a batch is
        sent are announced together in the next batch, because the embedded broker hands out one
        batch at a time.
        """
        topic = self._place.cfg.kafka.input_topic
        while True:
            waiting = [await queue.get()]
            while not queue.empty():
                waiting.append(queue.get_nowait())
            out = Outgoing(
                topic,
                partition,
                [stream_name(index).encode() for index, _, _ in waiting],
                [
                    reference(self._place, index, made, int(due_s * 1000))
                    for index, made, due_s in waiting
                ],
            )
            announced_s = time.time()
            for index, made, _ in waiting:
                self._progress.sent(index, made.key, announced_s, made.rows)
            await (await self._sink.send(out))
            for _ in waiting:
                queue.task_done()


@asynccontextmanager
async def sending(place: DemoPlace) -> AsyncIterator[KafkaSink]:
    sink = KafkaSink(place.cfg.kafka, SystemClock())
    async with stopped_after(sink.stop):
        await sink.start()
        yield sink


def reference(place: DemoPlace, index: int, made: Made, at_ms: int) -> bytes:
    reference = Reference(
        bucket=place.bucket, key=made.key, stream=stream_name(index), event_time=at_ms
    )
    return encode_reference(reference).ljust(place.reference_bytes)


async def is_set_by(event: asyncio.Event, wall_s: float) -> bool:
    """Wait for the event until the system's clock shows `wall_s`. Returns True if the event was
    set.
    """
    try:
        async with asyncio.timeout(max(0.0, wall_s - time.time())):
            return await event.wait()
    except TimeoutError:
        return False
