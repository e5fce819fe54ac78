"""Each message of a decoder, each of its fields, each with lies: the worker lives, the object is
answered, and the rows of others are those that they were.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
import numpy as np
import orjson
import pytest

from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import BytesRows, Form, JsonRows, Matrix, Payload
from penstock.decoders.decoder_process import RANGE
from penstock.decoders.protocol import TAIL
from penstock.decoders.socket_messages import (
    DATA,
    ENDED,
    FAILED,
    MORE,
    NEED,
    ROWS,
    TAKEN,
    TASK,
    placed,
)
from penstock.formats.pictures.pixels import PictureOptions
from penstock.formats.runs import RowOptions
from penstock.messages.times import LATEST_MS
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.behind import DecodersBehind
from tests.support.pipelines import World, csv, running, until

FIRST_LIFE_S = 5.0
NOW_MS = 1_795_262_400_000
LARGE = (0, -1, 2**31, 2**62, 2**63, 2**64 - 1, "x", None)
# Two rows of two numbers, two texts and two opaque rows: each with what its header says.
NUMBERS = np.ones((2, 2), "<f4").tobytes()
TEXTS = (b'["x"],["y"]', np.array([5, 11], "<i8").tobytes())
OPAQUE = (b"\1\0\0\0x\1\0\0\0y", np.array([5, 10], "<i8").tobytes())
TIMES = np.array([1, 2**63 - 1], "<i8").tobytes()
TRUE: dict[Form, tuple[list[object], Sequence[bytes]]] = {
    "matrix": ([2, "matrix", 2, None, None, False, False, False], [NUMBERS]),
    "json": ([2, "json", 0, None, None, False, False, False], TEXTS),
    "bytes": ([2, "bytes", 0, None, None, False, False, False], OPAQUE),
}
FIELDS: list[Sequence[object]] = [
    (1, 3, 100_000_000, *LARGE),
    ("matrix", "json", "bytes", "columns", "none", "other", 7),
    (1, 3, *LARGE),
    ("", "bad", "\ud7ff\n\x1b[2J", 7),
    ("", "m" * 20_000, '","id":"forged', 7),
    *[(True, 7)] * 3,
]
LENGTHS: Sequence[object] = ([], [0], [15], [16, 16], [-16], [2**62] * 2, [8] * 7, "x")


def rows(head: Sequence[object], parts: Sequence[bytes], lengths: object = None) -> bytes:
    lengths = [len(part) for part in parts] if lengths is None else lengths
    header = msgspec.msgpack.encode([[*head, lengths]])
    body = b"".join(part + bytes(-len(part) % 64) for part in parts)
    start = len(header).to_bytes(4, "little") + header
    return ROWS + b"=" + start + bytes(-len(start) % 64) + body


def of_rows(form: Form) -> Iterator[bytes]:
    head, parts = TRUE[form]
    yield rows(head, parts)
    for place, values in enumerate(FIELDS):
        for value in values:
            yield rows([*head[:place], value, *head[place + 1 :]], parts)
    for lengths in LENGTHS:
        yield rows(head, parts, lengths)
    for flag in (5, 6, 7):  # kept columns, times, and times after the first
        more = [TEXTS, [TIMES], [TIMES]][flag - 5]
        yield rows([*head[:flag], True, *head[flag + 1 :]], [*parts, *more])
    for ends in ([5, 4], [-1, 5], [2**63 - 1, 5], [5, 9], [9, 10], [0, 10]):
        yield rows(head, [parts[0], np.array(ends, "<i8").tobytes()])
    for text in (b'"x"],["y"]', b'{"a":1}],[', b"1,2,3,4,5,6", b'"\xff","yyyyy', b"[1,2],3,[4]"):
        yield rows(head, [text, *parts[1:]])
    yield rows(head, parts) + bytes(64)
    yield ROWS + b"="
    yield ROWS + b"=\xff\xff\xff\xff"
    yield ROWS + b"=" + (9).to_bytes(4, "little") + b"\x81\xa1a\1" + bytes(60)


def ends() -> Iterator[bytes]:
    for code in (None, "bad_row", "not_found", "changed", "unavailable", "forbidden", "x", 7):
        yield ENDED + b"=" + msgspec.msgpack.encode({"notes": [], "code": code, "message": "x\n"})
    for more in (
        {"libraries": ["os", "PIL", "../x"]},
        {"notes": [{"level": 2**63, "text": "\n{"}]},
        {"notes": [{"level": -1, "text": 7}]},
        {"notes": 7},
        {"message": None},
    ):
        yield ENDED + b"=" + msgspec.msgpack.encode({"notes": [], "code": "bad_format", **more})
    yield ENDED + b"="
    yield ENDED + b"=\xc1"
    yield FAILED + b"=" + b"\xff" * 30_000


def others() -> Iterator[bytes]:
    for start, stop in ((0, 2**62), (5, 2), (-9, -1), (2**62, 2**62 + 1), (0, 1)):
        yield NEED + b"=" + RANGE.pack(start, stop)
    yield NEED + b"=" + RANGE.pack(*TAIL)
    for body in (b"", b"xx", bytes(17)):
        yield NEED + b"=" + body
    for letter in (TASK, DATA, MORE, TAKEN, b"?"):
        yield letter + b"=x"
    for nbytes in (0, 1, 4 << 20, (4 << 20) + 1, 2**32 - 1):
        yield placed(ROWS, nbytes)
    yield b"R"
    yield b"R@\0"


async def echo(payloads: Sequence[Payload]) -> Answers:
    """A model that reads a request as a server does, and answers each row by what is in it."""
    found: list[bytes] = []
    if isinstance(payloads[0], Matrix):
        for payload in payloads:
            assert isinstance(payload, Matrix)
            found += [b'"%d"' % row.sum() for row in payload.values]
        return Answers(found, {})
    body = b"".join(bytes(payload.body) + b"," for payload in payloads)  # type: ignore[attr-defined]
    if isinstance(payloads[0], JsonRows):
        return Answers([orjson.dumps(str(row)) for row in orjson.loads(b"[%b]" % body[:-1])], {})
    for payload in payloads:
        assert isinstance(payload, BytesRows)
        rest = bytes(payload.body)
        while rest:
            end = 4 + int.from_bytes(rest[:4], "little")
            found.append(b'"%b"' % rest[4:end].hex().encode())
            rest = rest[end:]
    return Answers(found, {})


NEIGHBOURS: dict[Form, tuple[str, bytes, list[str]]] = {
    "matrix": ("csv", csv(3, 7), ["14", "16", "18"]),
    "json": ("csv", csv(2, 7), ["[7, 7]", "[8, 8]"]),
    "bytes": ("bin", b"honest", [b"honest".hex()]),
}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("form", TRUE)
def test_whatever_a_decoder_says_rows_of_others_are_untouched(form: Form) -> None:
    lies = [*of_rows(form), *ends(), *others()]
    ending, data, expected = NEIGHBOURS[form]

    @virtual_time
    async def scenario() -> None:
        world = World(decoders=DecodersBehind())
        options = RowOptions(form=form, own=(PictureOptions(),))
        world.with_settings(rows=options, line=LineLimits(0.0, 0), drain_s=0.0)
        world.model.script = echo
        for number, lie in enumerate(lies):
            world.announce(f"{number}.deadly", b"say " + lie, event_time=NOW_MS)
            world.announce(f"{number}.{ending}", data)
        last = 2 * len(lies)
        world.sink.hold = True  # the first life ends before anything is acknowledged
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIFE_S), running(world):
                await asyncio.Event().wait()
        world.sink.hold = False
        world.sink.topics.clear()
        async with running(world) as pipeline:
            await until(lambda: world.next_offset() == last, within_s=3_600)
        assert not pipeline.wiring.budget.spent_bytes
        found: dict[int, list[dict[str, object]]] = {}
        for record in world.records():
            found.setdefault(record["source"]["offset"], []).append(record)
        assert sorted(found) == list(range(last))
        for number in range(len(lies)):
            assert [one["prediction"] for one in found[2 * number + 1]] == expected, lies[number]
            key = {one["object"]["key"] for one in found[2 * number]}  # type: ignore[index]
            assert key == {f"{number}.deadly"}
            assert {one["event_time"] for one in found[2 * number]} <= {
                NOW_MS,
                NOW_MS + 1,
                LATEST_MS,
            }

    scenario()
