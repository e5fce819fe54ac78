"""Reads Avro object containers by fastavro (the extra `avro`); each record is a row.

Rule: the library gets one record at a time, after the blocks were found and unpacked here, within
limits, and the schema was checked. Fields that nobody asked for are not converted. A record with a
value that cannot be converted is read field by field, and is a bad row. Layout: Avro 1.12, "Object
Container Files".
"""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from penstock.core.rows.payload import JsonRows, Kept, Matrix
from penstock.errors import ErrorCode, Poison, without_addresses
from penstock.formats.archives.unpacking import TABLE_FREE_BYTES, Expansion
from penstock.formats.first_bytes import no_such
from penstock.formats.kept_columns import moments, with_kept
from penstock.formats.parser_chain import EXPANDING_STEP_BYTES, Parser
from penstock.formats.runs import (
    MOST_EXACT_ROWS,
    PIECE_BYTES,
    BadRow,
    RowOptions,
    Run,
    nbytes_of,
    read_rows,
    too_long,
)
from penstock.formats.tables.avro_schema import (
    MOST_UNPACKED_BYTES,
    NOT_UNPACKED,
    UNPACK,
    check_schema,
    definitions,
    described,
    read_as,
    whole,
)
from penstock.formats.tables.batches import STEP_BYTES, chosen
from penstock.formats.tables.weight import key_bytes
from penstock.formats.text.lines import join_floats, to_float32
from penstock.packages import missing_extra

MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_HEADER: Final = {"type": "map", "values": "bytes"}
MOST_HEADER_BYTES: Final = 4 << 20
# A block may have at most this many bytes. Usual writers make blocks of 16 kB to some MB.
MOST_BLOCK_BYTES: Final = 16 << 20
_RUN_ROWS: Final = 4_096
# The types whose values are always numbers, and never null.
_PLAIN: Final = frozenset({"int", "long", "float", "double", "boolean"})
_AS_JSON: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


def looks(head: bytes) -> bool:
    return head.startswith(MAGIC)


class _Field(NamedTuple):
    """How one field is read, if its record cannot be read as a whole. `typed`: None if nobody asked
    for the field.
    """

    name: str
    typed: Any
    raw: Any
    kind: str


class _Odd(NamedTuple):
    """Stands for a record with a value that cannot be."""

    why: str


class AvroParser(Parser):
    step_bytes = EXPANDING_STEP_BYTES

    def __init__(self, options: RowOptions) -> None:
        try:
            import fastavro  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("the format avro", "avro", error) from None
        self._avro: Any = fastavro
        self._options = options
        self._held = bytearray()
        self._begun = False
        self._unpack: Callable[[bytes], bytes] = UNPACK["null"]
        self._schema: Any = None
        self._sync = b""
        # The types of the record's fields; empty if the schema is not that of a record.
        self._fields: dict[str, Any] = {}
        self._given: list[str] = []
        self._one_by_one: list[_Field] | None = None
        self._expansion = Expansion(options, free_bytes=TABLE_FREE_BYTES)
        self._most_rows = MOST_EXACT_ROWS
        self._blocks = self._read_records = 0
        self._width = 0  # how many numbers a row has; 0 until the first good row has come
        # A function that takes the wanted fields out of a record. None: some of these fields may
        # hold something else than a number.
        self._get: Callable[[Any], Any] | None = None

    def feed(self, data: bytes) -> Iterator[Run]:
        self._held += data
        if not self._begun and not self._begin():
            return
        while (block := self._next_block()) is not None:
            yield from self._rows(*block)
            self._blocks += 1
            self._read_records += block[1]

    def close(self) -> Iterator[Run]:
        if not self._begun or self._held:
            raise self._damaged("breaks off")
        return iter(())

    def _begin(self) -> bool:
        """Read the header. False: more bytes are needed."""
        head = bytes(self._held[:MOST_HEADER_BYTES])
        if head[: len(MAGIC)] != MAGIC[: len(head)]:
            raise no_such("Avro object container", None)
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
        options = self._options
        codec = metadata.get("avro.codec", b"null").decode(errors="replace")
        if codec not in UNPACK:
            raise Poison("bad_format", f"Avro of the codec {codec!r} is not read")
        self._unpack = UNPACK[codec]
        try:
            text = metadata.get("avro.schema", b"")
            schema = self._schema = self._avro.parse_schema(orjson.loads(text))
            check_schema(schema)
        except Poison:
            raise
        # For a wrong schema the library raises errors of many kinds.
        except Exception as error:
            raise Poison("bad_format", f"the Avro schema cannot be read: {error!r}") from None
        if isinstance(schema, dict) and schema.get("type") == "record":
            self._fields = {field["name"]: field["type"] for field in schema["fields"]}
        self._given = chosen(
            list(self._fields), options, lambda name: f'no field "{name}" in the Avro schema'
        )
        kinds = [self._fields[name] for name in self._given]
        is_plain = all(isinstance(kind, str) and kind in _PLAIN for kind in kinds)
        wanted = {*self._given, *options.stays}
        if self._fields and (wanted != set(self._fields) or b"uuid" in text):
            known = definitions(schema)
            self._schema = self._avro.parse_schema(read_as(schema, known, wanted))
        self._declared = schema
        if options.form == "json":
            names_bytes = sum(key_bytes(name) for name in self._given)
            self._most_rows = max(1, min(MOST_EXACT_ROWS, STEP_BYTES // max(1, names_bytes)))
        if options.as_numbers and is_plain and 0 < len(self._given) <= options.max_columns:
            self._get = itemgetter(*self._given)

    def _next_block(self) -> tuple[bytes, int] | None:
        """Returns the next block's bytes, and the number of records in them. None: more bytes are
        needed.
        """
        held = self._held
        records, at = _number(held, 0)
        nbytes, at = _number(held, at) if at else (0, 0)
        if not at:
            return None
        if records < 0 or not 0 <= nbytes <= MOST_BLOCK_BYTES:
            raise self._damaged(f"has {records} records in {nbytes} bytes")
        stop = at + nbytes
        if len(held) < stop + _SYNC_BYTES:
            return None
        data = bytes(held[at:stop])
        if held[stop : stop + _SYNC_BYTES] != self._sync:
            raise self._damaged("does not end with the file's mark")
        del held[: stop + _SYNC_BYTES]
        return data, records

    def _rows(self, data: bytes, records: int) -> Iterator[Run]:
        try:
            unpacked = self._unpack(data)
        except NOT_UNPACKED as error:
            raise self._damaged(f"cannot be unpacked: {error}") from None
        if len(unpacked) > MOST_UNPACKED_BYTES:
            raise self._damaged(
                f"inflates to more than {MOST_UNPACKED_BYTES} bytes", code="too_large"
            )
        if records > len(unpacked):
            raise self._damaged(f"has {records} records in {len(unpacked)} bytes")
        self._expansion.add(len(data), 0)
        file = io.BytesIO(unpacked)
        for start in range(0, records, _RUN_ROWS):
            values, damage = self._read(file, min(_RUN_ROWS, records - start))
            yield from self._runs(values)
            if damage is not None:
                raise damage
        if file.tell() != len(unpacked):
            raise self._damaged("has more bytes than its records")

    def _damaged(self, what: str, code: ErrorCode = "bad_format") -> Poison:
        """The error for the block that is being read."""
        where = f"block {self._blocks} of the Avro file, from row {self._read_records} on,"
        return Poison(code, f"{where} {what}; write the file again")

    def _read(self, file: io.BytesIO, records: int) -> tuple[list[Any], Poison | None]:
        """The next records; if the data is damaged, only those before the damage, and the error."""
        read, schema, start = self._avro.schemaless_reader, self._schema, file.tell()
        # For values that cannot be, and for damaged data, the library raises errors of many kinds.
        # Some of them are Python's own.
        try:
            return [read(file, schema) for _ in range(records)], None
        except Exception:
            file.seek(start)
        values: list[Any] = []
        while len(values) < records:
            start = file.tell()
            try:
                values.append(read(file, schema))
            except Exception:
                file.seek(start)
                try:
                    values.append(self._read_odd(file))
                except Exception as error:
                    reason = without_addresses(repr(error))
                    return values, self._damaged(f"has a record that cannot be read: {reason}")
        return values, None

    def _read_odd(self, file: io.BytesIO) -> Any:
        """The next record, which has a value that cannot be. If the value is only kept, it becomes
        None.
        """
        if self._one_by_one is None:
            self._one_by_one = self._fields_apart()
        read, why = self._avro.schemaless_reader, ""
        record: dict[str, Any] = {}
        for field in self._one_by_one:
            start = file.tell()
            try:
                record[field.name] = read(file, field.raw if field.typed is None else field.typed)
            except Exception:
                file.seek(start)
                raw = read(file, field.raw)
                record[field.name] = None
                if not self._fields or field.name in self._given:
                    what = f'field "{field.name}"' if self._fields else "the row"
                    why = why or f"{what} holds {raw!r:.40}, which is no {field.kind}"
        return _Odd(why) if why else record

    def _fields_apart(self) -> list[_Field]:
        known, wanted = definitions(self._declared), {*self._given, *self._options.stays}
        kinds, parse = self._fields or {"": self._declared}, self._avro.parse_schema
        return [
            _Field(
                name,
                parse(whole(kind, known, is_raw=False)) if name in wanted or not name else None,
                parse(whole(kind, known, is_raw=True)),
                described(kind),
            )
            for name, kind in kinds.items()
        ]

    def _runs(self, records: list[Any]) -> Iterator[Run]:
        if self._get is not None and records:
            values = np.array([self._get(record) for record in records], np.float64)
            numbers = to_float32(values.reshape(len(records), -1))
            step = max(1, PIECE_BYTES // max(1, 4 * numbers.shape[1]))
            parts = (numbers[start : start + step] for start in range(0, len(numbers), step))
            runs = iter([Run(len(part), Matrix(part)) for part in parts])
        elif self._options.as_numbers:
            runs = read_rows(records, self._numbers, join_floats)
        else:
            runs = read_rows(records, self._element, JsonRows.of, self._most_rows)
        for run in with_kept(runs, records, self._kept) if self._options.stays else runs:
            self._expansion.add(0, nbytes_of(run))
            self._expansion.check()
            yield run

    def _element(self, record: Any) -> bytes:
        if isinstance(record, _Odd):
            raise BadRow(record.why)
        if self._given != list(self._fields):
            record = {name: record[name] for name in self._given}
        try:
            element = orjson.dumps(record, default=_json_value, option=_AS_JSON)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRow(f"the record has no form in JSON: {error}") from None
        if len(element) > self._options.row_bytes:
            raise BadRow(too_long(self._options.row_bytes))
        return element

    def _numbers(self, record: Any) -> list[float]:
        if isinstance(record, _Odd):
            raise BadRow(record.why)
        numbers: list[float] = []
        # If the schema is not that of a record, the value itself is the row.
        named = [(f'field "{name}"', record[name]) for name in self._given]
        for what, value in named if self._fields else [("the row", record)]:
            for item in value if isinstance(value, list) else (value,):
                number = self._options.missing if item is None else item
                if not isinstance(number, int | float | Decimal):
                    raise BadRow(f"{what} holds {item!r:.40}, no number")
                numbers.append(float(number))
        if len(numbers) != (self._width or len(numbers)):
            raise BadRow(f"row has {len(numbers)} numbers, expected {self._width}")
        if not 0 < len(numbers) <= self._options.max_columns:
            raise BadRow(
                f"row has {len(numbers)} numbers, 1 to {self._options.max_columns} are read "
                "(limits.columns)"
            )
        self._width = len(numbers)
        return numbers

    def _kept(self, records: Sequence[Any]) -> Kept:
        names, time = self._options.keep, self._options.time
        return Kept.of(
            [_columns(record, names) for record in records] if names else None,
            None if time is None else moments((record[time] for record in records), self._options),
        )


def _columns(record: Any, names: Sequence[str]) -> bytes:
    """The kept columns of a row as JSON. If JSON has no form for their values, they become null,
    and the row stays good.
    """
    try:
        values = {name: record[name] for name in names}
        return orjson.dumps(values, default=_json_value, option=_AS_JSON)
    except TypeError:  # orjson cannot write some values, such as arrays that are nested 255 deep
        return orjson.dumps(dict.fromkeys(names))


def _json_value(value: Any) -> Any:
    """The JSON form of a value that orjson cannot write."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))  # as a float, the number would lose digits
    raise TypeError(type(value).__name__)


def _number(held: bytearray, at: int) -> tuple[int, int]:
    """Returns the zigzag number that begins at `at`, and the place where it ends. The place is 0 if
    more bytes are needed.
    """
    value = shift = 0
    for end in range(at, min(len(held), at + 10)):
        value |= (held[end] & 0x7F) << shift
        shift += 7
        if held[end] < 0x80:
            return (value >> 1) ^ -(value & 1), end + 1
    if len(held) >= at + 10:
        raise Poison("bad_format", "an Avro block begins with no number")
    return 0, 0
