"""Avro object containers: each record is a row; decoded by fastavro, the extra `avro`.

Rule: blocks are framed and unpacked here, bounded, before the library sees them. A schema that
holds itself, or arrays of nothing, is refused: a few bytes of it could be decoded without end. A
record is a JSON object, or the numbers of its fields. Layout: Avro 1.12, "Object Container Files".
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple

import cramjam
import orjson
from backports import zstd

from consumers.core.kept import Kept
from consumers.core.payload import JsonRows
from consumers.errors import ErrorCode, Poison, missing_extra
from consumers.formats.base import RowOptions, Run
from consumers.formats.codecs import WINDOW_BYTES
from consumers.formats.keeping import moment_ms
from consumers.formats.push import EXPANDING_STEP_BYTES
from consumers.formats.rows import BadRow, join_floats, read_rows, too_long
from consumers.formats.tables import json_value

MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_HEADER: Final = {"type": "map", "values": "bytes"}
MOST_HEADER_BYTES: Final = 4 << 20
# Writers make blocks of 16 kB to some MB.
MOST_BLOCK_BYTES: Final = 16 << 20
MOST_UNPACKED_BYTES: Final = 64 << 20
_RUN_ROWS: Final = 4_096
_CRC_BYTES: Final = 4


class _Block(NamedTuple):
    records: int
    start: int
    stop: int


def looks(head: bytes) -> bool:
    return head.startswith(MAGIC)


def library() -> ModuleType:
    """fastavro. Raises `Fatal` where it is not installed."""
    try:
        import fastavro  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("the format avro", "avro", error) from None
    module: ModuleType = fastavro
    return module


class AvroParser:
    """Push parser of one container."""

    step_bytes = EXPANDING_STEP_BYTES
    damage: ErrorCode = "bad_format"

    def __init__(self, options: RowOptions) -> None:
        self._avro = library()
        self._options = options
        self._held = bytearray()
        self._begun = False
        self._unpack: Callable[[bytes], bytes] = _CODECS["null"]
        self._schema: Any = None
        self._sync = b""
        self._fields: list[str] = []
        self._given: list[str] = []

    def feed(self, data: bytes) -> Iterator[Run]:
        self._held += data
        if not self._begun and not self._begin():
            return
        while (block := self._next_block()) is not None:
            data = bytes(self._held[block.start : block.stop])
            if bytes(self._held[block.stop : block.stop + _SYNC_BYTES]) != self._sync:
                raise Poison("bad_format", "an Avro block does not end with the file's mark")
            del self._held[: block.stop + _SYNC_BYTES]
            yield from self._rows(data, block.records)

    def close(self) -> Iterator[Run]:
        if not self._begun or self._held:
            raise Poison("bad_format", "the Avro file breaks off")
        return iter(())

    def _begin(self) -> bool:
        """Read the header; False: it is not all here."""
        head = bytes(self._held[:MOST_HEADER_BYTES])
        if head[: len(MAGIC)] != MAGIC[: len(head)]:
            raise Poison("bad_format", "this is no Avro object container")
        file = io.BytesIO(head[len(MAGIC) :])
        try:
            metadata = self._avro.schemaless_reader(file, _HEADER)
        except (EOFError, IndexError, ValueError):
            if len(head) < MOST_HEADER_BYTES:
                return False
            raise Poison("bad_format", "the Avro header has no end") from None
        end = len(MAGIC) + file.tell() + _SYNC_BYTES
        if len(self._held) < end:
            return False
        self._settle(metadata)
        self._sync = bytes(self._held[end - _SYNC_BYTES : end])
        del self._held[:end]
        self._begun = True
        return True

    def _settle(self, metadata: dict[str, bytes]) -> None:
        codec = metadata.get("avro.codec", b"null").decode(errors="replace")
        if codec not in _CODECS:
            raise Poison("bad_format", f"Avro of the codec {codec!r} is not read")
        self._unpack = _CODECS[codec]
        try:
            schema = orjson.loads(metadata.get("avro.schema", b""))
            _check_schema(schema, frozenset())
            self._schema = self._avro.parse_schema(schema)
        except Poison:
            raise
        # A schema is a program of somebody else's; whatever is wrong with it, it cannot be used.
        except Exception as error:
            raise Poison("bad_format", f"the Avro schema cannot be read: {error!r}") from None
        if isinstance(schema, dict) and schema.get("type") == "record":
            self._fields = [field["name"] for field in schema["fields"]]
        self._given = self._chosen()

    def _chosen(self) -> list[str]:
        options, fields = self._options, self._fields
        for name in options.stays:
            if name not in fields:
                raise Poison("bad_format", f'no field "{name}" in the Avro schema')
        if options.columns is None:
            return [name for name in fields if name not in options.stays]
        found: list[str] = []
        for column in options.columns:
            if isinstance(column, int) and 0 <= column < len(fields):
                found.append(fields[column])
            elif column in fields:
                found.append(str(column))
            else:
                raise Poison("bad_format", f'no field "{column}" in the Avro schema')
        return found

    def _next_block(self) -> _Block | None:
        """Where the next block lies in what is held; None: it is not all here."""
        records, at = _number(self._held, 0)
        nbytes, at = _number(self._held, at) if at else (0, 0)
        if not at:
            return None
        if records < 0 or not 0 <= nbytes <= MOST_BLOCK_BYTES:
            raise Poison("bad_format", f"an Avro block of {records} records in {nbytes} bytes")
        stop = at + nbytes
        return _Block(records, at, stop) if len(self._held) >= stop + _SYNC_BYTES else None

    def _rows(self, data: bytes, records: int) -> Iterator[Run]:
        try:
            unpacked = self._unpack(data)
        except _UNPACKING as error:
            raise Poison("bad_format", f"an Avro block is damaged: {error}") from None
        if len(unpacked) > MOST_UNPACKED_BYTES:
            raise Poison(
                "too_large",
                f"an Avro block inflates to more than {MOST_UNPACKED_BYTES} bytes",
            )
        if records > len(unpacked):
            raise Poison("bad_format", f"{records} Avro records in {len(unpacked)} bytes")
        file = io.BytesIO(unpacked)
        for start in range(0, records, _RUN_ROWS):
            yield from self._runs(self._read(file, min(_RUN_ROWS, records - start)))
        if file.tell() != len(unpacked):
            raise Poison("bad_format", "an Avro block has more bytes than its records")

    def _read(self, file: io.BytesIO, records: int) -> list[Any]:
        try:
            return [self._avro.schemaless_reader(file, self._schema) for _ in range(records)]
        # On damaged data the library raises what its types raise.
        except Exception as error:
            raise Poison("bad_format", f"an Avro record cannot be read: {error!r}") from None

    def _runs(self, records: list[Any]) -> Iterator[Run]:
        if self._options.as_numbers:
            runs = read_rows(records, self._numbers, join_floats)
        else:
            runs = read_rows(records, self._element, JsonRows.of)
        if not self._options.stays:
            yield from runs
            return
        at = 0
        for run in runs:
            stop = at + run.rows
            yield run if run.payload is None else run._replace(kept=self._kept(records[at:stop]))
            at = stop

    def _element(self, record: Any) -> bytes:
        if self._fields:
            record = {name: record[name] for name in self._given}
        try:
            element = orjson.dumps(record, default=json_value, option=orjson.OPT_NON_STR_KEYS)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRow(f"the record has no form in JSON: {error}") from None
        if len(element) > self._options.row_bytes:
            raise BadRow(too_long(self._options.row_bytes))
        return element

    def _numbers(self, record: Any) -> list[float]:
        found: list[float] = []
        for name in self._given:
            value = record[name]
            for one in value if isinstance(value, list) else (value,):
                number = self._options.missing if one is None else one
                if not isinstance(number, int | float):
                    raise BadRow(f'field "{name}" holds {one!r:.40}, no number')
                found.append(number)
        return found

    def _kept(self, records: list[Any]) -> Kept:
        names, time = self._options.keep, self._options.time
        return Kept.of(
            [
                orjson.dumps({name: record[name] for name in names}, default=json_value)
                for record in records
            ]
            if names
            else None,
            [moment_ms(record[time]) for record in records] if time is not None else None,
        )


def _number(held: bytearray, at: int) -> tuple[int, int]:
    """A zigzag number and where it ends; 0 for the end if it is not all here."""
    value = shift = 0
    for end in range(at, min(len(held), at + 10)):
        value |= (held[end] & 0x7F) << shift
        shift += 7
        if held[end] < 0x80:
            return (value >> 1) ^ -(value & 1), end + 1
    if len(held) >= at + 10:
        raise Poison("bad_format", "an Avro block begins with no number")
    return 0, 0


def _check_schema(schema: Any, within: frozenset[str]) -> bool:
    """Raises `Poison` for what could be decoded without end; True: its values have no bytes."""
    if isinstance(schema, str):
        if schema in within:
            raise Poison(
                "bad_format", f"the Avro schema holds itself ({schema}), which is not read"
            )
        return schema == "null"
    if isinstance(schema, list):
        for branch in schema:
            _check_schema(branch, within)
        return False
    kind = schema["type"]
    if kind == "array":
        if _check_schema(schema["items"], within):
            raise Poison("bad_format", "the Avro schema has arrays of nothing")
        return False
    if kind == "map":
        _check_schema(schema["values"], within)
        return False
    if kind in ("record", "error"):
        space = schema.get("namespace")
        names = {schema["name"], schema["name"].rpartition(".")[2], f"{space}.{schema['name']}"}
        inside = within | names
        empty = [_check_schema(field["type"], inside) for field in schema["fields"]]
        return all(empty)
    if kind == "fixed":
        return not schema["size"]
    return _check_schema(kind, within) if not isinstance(kind, str) else kind == "null"


def _snappy(data: bytes) -> bytes:
    body, check = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if cramjam.snappy.decompress_raw_len(body) > MOST_UNPACKED_BYTES:
        return bytes(MOST_UNPACKED_BYTES + 1)
    unpacked = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(unpacked).to_bytes(_CRC_BYTES, "big") != check:
        raise ValueError("its checksum is wrong")
    return unpacked


_MOST: Final = MOST_UNPACKED_BYTES + 1
_UNPACKING: Final = (
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    EOFError,
    ValueError,
)
_CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: zlib.decompressobj(-15).decompress(data, _MOST),
    "bzip2": lambda data: bz2.BZ2Decompressor().decompress(data, _MOST),
    "xz": lambda data: lzma.LZMADecompressor(memlimit=WINDOW_BYTES).decompress(data, _MOST),
    "zstandard": lambda data: zstd.ZstdDecompressor().decompress(data, _MOST),
    "snappy": _snappy,
}
