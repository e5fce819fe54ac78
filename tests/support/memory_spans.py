"""Spans in a list, for tests. Owner: the test."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.ports import Span


@dataclass(slots=True)
class MemorySpans:
    sent: list[Span] = field(default_factory=list)
    dropped: int = 0

    @property
    def exported(self) -> int:
        return len(self.sent)

    def send(self, spans: Sequence[Span]) -> None:
        self.sent += spans

    async def aclose(self) -> None:
        return
