"""What the cameras of the demo write: objects of every shape, the same ones in every run.

Rule: what stream `index` writes as its object `number` depends on nothing else. Each stream keeps
its own beat whatever the pipeline does (open loop): an object that leaves late counts from its due
time.
"""

import asyncio
import gzip
import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from consumers.demo.place import Place
from consumers.ports import Outgoing, Sink
from schemas.codec import encode_reference
from schemas.reference import Reference

Form = Literal["csv", "csv.gz", "ndjson", "tar.gz"]

COLUMNS = 16  # of the rows that the embedded model, and the stack's, take
ROWS = (8, 60)
TAR_EVERY = 8
TAR_MEMBERS = 3
CAMERAS_PER_SITE = 4
SEED = 20_260
_FORMS: tuple[Form, ...] = ("csv", "csv.gz", "ndjson", "csv")

OnSent = Callable[[int, str, float, int], None]


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
    """Every fourth stream sends an archive now and then."""
    kind = index % len(_FORMS)
    return "tar.gz" if kind == 0 and number % TAR_EVERY == TAR_EVERY - 1 else _FORMS[kind]


def forms(index: int) -> str:
    """All of a stream's forms, for people."""
    return ", ".join(dict.fromkeys(form(index, number) for number in range(TAR_EVERY)))


def make(index: int, number: int) -> Made:
    kind = form(index, number)
    random = np.random.default_rng([SEED, index, number])
    rows = int(random.integers(*ROWS, endpoint=True))
    table: list[list[float]] = random.normal(size=(rows, COLUMNS)).round(3).tolist()
    return Made(f"{stream_name(index)}/{number:06}.{kind}", _encoded(kind, table), rows)


def _encoded(kind: Form, table: list[list[float]]) -> bytes:
    if kind == "ndjson":
        return "".join(f"{row}\n" for row in table).encode()
    if kind == "tar.gz":
        return gzip.compress(_archive(table), mtime=0)
    body = "".join(",".join(map(str, row)) + "\n" for row in table).encode()
    return gzip.compress(body, mtime=0) if kind == "csv.gz" else body


def _archive(table: list[list[float]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in range(TAR_MEMBERS):
            body = _encoded("csv", table[member::TAR_MEMBERS])
            header = tarfile.TarInfo(f"part-{member}.csv")
            header.size = len(body)
            archive.addfile(header, io.BytesIO(body))
    return buffer.getvalue()


class Producers:
    """`create_topics`, then `run`: every stream writes and announces until the end, or `stop`."""

    def __init__(
        self, place: Place, sink: Sink, streams: int, rate_hz: float, on_sent: OnSent
    ) -> None:
        self._place = place
        self._sink = sink
        self._streams = streams
        self._rate_hz = rate_hz
        self._on_sent = on_sent
        self._partitions = 0

    async def create_topics(self) -> None:
        """Asking for a topic creates it on the embedded broker; the stack's are there."""
        cfg = self._place.cfg
        self._partitions = await self._sink.partitions(cfg.kafka.input_topic)
        for topic in (cfg.output.topic, cfg.output.dead_letter_topic):
            await self._sink.partitions(topic)

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        started_s = time.time()
        async with asyncio.TaskGroup() as tasks:
            for index in range(self._streams):
                tasks.create_task(self._stream(index, started_s, seconds, stop))

    async def _stream(
        self, index: int, started_s: float, seconds: float, stop: asyncio.Event
    ) -> None:
        # The streams' beats are spread over the period, as independent cameras' are.
        late_s = index / self._streams / self._rate_hz
        for number in count():
            after_s = late_s + number / self._rate_hz
            if after_s >= seconds or await _is_set_by(stop, started_s + after_s):
                return
            await self._send(index, make(index, number), started_s + after_s)

    async def _send(self, index: int, made: Made, due_s: float) -> None:
        name = stream_name(index)
        await self._place.write(made.key, made.body)
        reference = Reference(
            bucket=self._place.bucket, key=made.key, stream=name, event_time=int(due_s * 1000)
        )
        self._on_sent(index, made.key, due_s, made.rows)
        out = Outgoing(
            self._place.cfg.kafka.input_topic,
            index % self._partitions,
            [name.encode()],
            [encode_reference(reference)],
        )
        await (await self._sink.send(out))


async def _is_set_by(event: asyncio.Event, wall_s: float) -> bool:
    """Wait until that time of the system's clock; True at once when the event is set."""
    try:
        async with asyncio.timeout(max(0.0, wall_s - time.time())):
            return await event.wait()
    except TimeoutError:
        return False
