"""`penstock dlq list`: a table of the newest dead letters, or all of them as JSON lines.

Rule: a table has a limit, and JSON lines are printed without being kept. Texts come from outside:
characters that would control a terminal are printed as escapes. Owner: the command.
"""

import heapq
from collections.abc import Callable, Iterable
from contextlib import aclosing

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.dlq.choice import Choice
from penstock.dlq.letters import Filed, OnRead, Seen, letters, rows_text
from penstock.terminal_text import utc, visible


class Listing:
    """The newest `limit` letters, counts of all, and the places of stopped lines."""

    def __init__(self, limit: int) -> None:
        self.seen = Seen()
        self.stops: list[str] = []
        self._limit = limit
        self._newest: list[tuple[int, int, Filed]] = []
        self._count = 0

    def add(self, filed: Filed) -> None:
        self._count += 1
        entry = (filed.letter.failed_at, self._count, filed)
        if len(self._newest) < self._limit:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)

    @property
    def newest(self) -> list[Filed]:
        """The letters that are kept, the latest failure last."""
        return [filed for _, _, filed in sorted(self._newest, key=lambda entry: entry[:2])]

    def render(self) -> RenderableType:
        table = Table(pad_edge=False)
        for name in ("id", "failed at (UTC)", "code", "stream", "object", "rows", "message"):
            table.add_column(name, overflow="fold", no_wrap=name in ("id", "code"))
        for place, letter, _ in self.newest:
            about = letter.object
            table.add_row(
                str(place),
                utc(letter.failed_at),
                *map(
                    visible,
                    (
                        letter.code,
                        letter.stream,
                        f"{about.bucket}/{about.key}" if about else "-",
                        rows_text(letter.rows),
                        letter.message,
                    ),
                ),
            )
        hidden = self._count - len(self._newest)
        parts: list[RenderableType] = [table] if self._newest else []
        if hidden:
            parts.append(Text(f"{hidden:,} older ones are not shown; see --limit and --json"))
        parts.append(Text(self.seen.sentence()))
        parts += [Text(stop, style="bold red") for stop in self.stops]
        return Group(*parts)


async def list_letters(
    cfg: config.Config,
    choice: Choice,
    *,
    limit: int,
    on_letter: Callable[[Filed], None] | None,
    progress: OnRead,
) -> Listing:
    """With `on_letter`, each letter is passed to it and none is kept."""
    listing = Listing(limit)
    async with open_reader(cfg.kafka, "read_committed") as reader:
        async with aclosing(letters(cfg, reader, choice, listing.seen, progress)) as found:
            async for filed in found:
                (on_letter or listing.add)(filed)
        for topic in await reader.inputs():
            stopped = await reader.stopped(topic, await reader.spans(topic))
            listing.stops += _stop_lines(cfg.kafka.group, topic, stopped)
    return listing


def _stop_lines(group: str, topic: str, stopped: dict[int, list[int]]) -> Iterable[str]:
    for partition, offsets in sorted(stopped.items()):
        for offset in offsets:
            yield (
                f"line stopped: group {group} stands still at {topic}/{partition}/{offset}. Mend "
                "the cause, then start its worker again, or say penstock dlq resume STREAM: it "
                "goes on there"
            )


def as_json_line(filed: Filed) -> bytes:
    """The letter's own JSON on one line, with its `id` before the other fields."""
    text = msgspec.json.format(filed.value, indent=-1)
    return b'{"id":"%b",%b' % (str(filed.place).encode(), text[1:])
