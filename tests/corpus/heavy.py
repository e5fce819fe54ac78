"""What is small on the wire and was large in memory, or could be: each with its whole answer.

Here bytes are measured, so the tables of answers are short. Owner: `measuring.py`.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from penstock.core.rows.payload import Payload
from penstock.errors import Rejected
from penstock.formats.runs import RowOptions
from penstock.ports import Answers
from tests.corpus.cases import DEFAULT

KB = 1_000


@dataclass(frozen=True, slots=True)
class Heavy:
    """Messages, and objects by key, which it `announces` unless the messages name them. `says`
    is what the model does to good rows.
    """

    name: str
    messages: tuple[bytes | None, ...] = ()
    objects: tuple[tuple[str, bytes], ...] = ()
    options: RowOptions = DEFAULT
    says: str = "one"
    announces: bool = True

    @property
    def sent_bytes(self) -> int:
        return sum(len(value or b"") for value in self.messages) + sum(
            len(data) for _, data in self.objects
        )


async def answers(says: str, payloads: Sequence[Payload]) -> Answers:
    rows = sum(payload.rows for payload in payloads)
    if says == "refuses":
        raise Rejected("model_rejected", "the row is not to its taste")
    if says == "errors":
        return Answers([b"null"] * rows, {row: f"no {row}" for row in range(rows)})
    if says == "long":
        return Answers([b'"%b"' % (b"x" * 20_000) for _ in range(rows)], {})
    return Answers([b"1"] * rows, {})


def _object(
    name: str, key: str, data: bytes, *, options: RowOptions = DEFAULT, says: str = "one"
) -> Heavy:
    return Heavy(name, (), ((key, data),), options, says)


def _inline(rows: bytes, **fields: object) -> bytes:
    return b'{"stream":"s",%b"inline":[%b]}' % (
        b"".join(
            b'"%b":%b,' % (key.encode(), orjson.dumps(value)) for key, value in fields.items()
        ),
        rows,
    )


def _gzip(text: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()


def _reference(key: str, **fields: object) -> bytes:
    return orjson.dumps({"bucket": "b", "key": key} | fields)


_CSV = b"".join(b"%d,%d\n" % (row, row) for row in range(30_000))
_NOISE = random.Random(1).randbytes(100 * KB).replace(b"\n", b"")

HEAVY = [
    _object("lines that are no JSON", "x.ndjson", b"x\n" * 150_000),
    _object("lines that are no numbers, each its own", "x.csv",
            b"".join(b"id-%06d,1\n" % row for row in range(40_000))),
    _object("lines of one letter, each unlike the one before", "x.csv",
            b"1\n" + b"a\nb\n" * 30_000),
    _object("good and bad rows in turn", "x.csv", b"1\nx\n" * 25_000),
    _object("texts that the model takes", "x.csv", b"1,a,b\n" * 40_000,
            options=RowOptions(form="json")),
    _object("bad lines, packed a thousand times", "x.ndjson.gz",
            _gzip(_NOISE + b"\n" + b"x\n" * 150_000)),
    _object("good lines, packed a thousand times", "x.csv.gz", _gzip(b"1\n" * 700_000)),
    _object("rows that the model refuses", "x.csv", _CSV[: 20 * KB], says="refuses"),
    _object("rows that the model names bad", "x.csv", _CSV, says="errors"),
    _object("rows with long answers", "x.csv", _CSV[: 8 * KB], says="long"),
    Heavy("inline rows, each bad in its own way",
          (_inline(b",".join(b'["id-%06d",1]' % row for row in range(20_000))),)),
    Heavy("inline rows, every second bad, and attributes",
          (_inline(b",".join([b'[1,2],["a"]'] * 5_000), attributes={"a": "x" * 60_000}),)),
    Heavy("inline numbers that are no rows", (_inline(b",".join([b"1"] * 200_000)),)),
    Heavy("attributes of 60 kB at 5,000 rows",
          (_reference("x.csv", attributes={"a": "x" * 60_000}),),
          (("x.csv", _CSV[: 50 * KB]),), announces=False),
    Heavy("attributes of empty objects, a hundred times",
          (_reference("no.csv", attributes={"a": [{}] * 20_000}),) * 100),
    Heavy("15,000 objects that are not there",
          (b'{"objects":[%b]}' % b",".join([_reference("no")] * 15_000),)),
    Heavy("4,096 rows of 60,000, each a range, sixteen times",
          tuple(_reference(f"{number}.csv", rows=[[14 * row, 14 * row + 1] for row in range(4096)])
                for number in range(16)),
          tuple((f"{number}.csv", b"1,2\n" * 60_000) for number in range(16)), announces=False),
    Heavy("megabytes of nothing", (b" " * 900_000,) * 20),
]  # fmt: skip
