"""The reader of the output topic while the demo runs: a consumer like any other.

Rule: it looks at the last record of each object only; the others pass unread.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from consumers import config
from consumers.adapters.kafka_source import KafkaSource
from consumers.ports import Commit, Record
from schemas.prediction import ObjectId

POLL_WAIT_MS = 100

OnAnswered = Callable[[str, int], None]


class _Last(Struct):
    """What the last record of an object says, as far as it is shown."""

    object: ObjectId | None
    last: bool = False
    rows: int = 0


_decoder = msgspec.json.Decoder(_Last)


class Tail:
    """Calls `on_answered` with the key and the rows of every object whose last record arrives."""

    def __init__(self, cfg: config.Config, on_answered: OnAnswered) -> None:
        settings = msgspec.structs.replace(
            cfg.kafka, input_topic=cfg.output.topic, group=f"{cfg.kafka.group}-view"
        )
        self._source = KafkaSource(settings, drain_ms=0)
        self._on_answered = on_answered
        self._partitions: set[int] = set()

    async def start(self) -> None:
        await self._source.start(self)

    async def run(self) -> None:
        while True:
            for record in await self._source.poll(self._partitions, POLL_WAIT_MS):
                self._see(record)

    async def stop(self) -> None:
        await self._source.stop()

    async def assigned(self, starts: Mapping[int, Commit]) -> None:
        self._partitions |= starts.keys()

    async def revoked(self, partitions: Collection[int]) -> None:
        self._partitions -= set(partitions)

    def _see(self, record: Record) -> None:
        if record.value is None or b'"last":true' not in record.value:
            return
        seen = _decoder.decode(record.value)
        if seen.last and seen.object is not None:
            self._on_answered(seen.object.key, seen.rows)
