"""Typed columns of a Parquet result: the fields of flat answers, and the kept columns.

Rule: the rows of the first row group decide the columns and their types, because a file has one
schema and is written while answers come. What does not fit stays JSON text in `prediction` (kept
columns: in `columns`), so no answer is bent to a type. An answer can be made again from its
columns: the metadata tells which null is a field that is null, and which a missing one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct

# The key in the metadata of the file's schema, under which the shapes stand as JSON.
SHAPES: Final = b"penstock.columns"
# An answer with more fields is a mapping, from a thousand classes to their scores, say.
MOST_FIELDS: Final = 100
# This much text is decoded at a time. As Python objects it takes some thirty times as much.
SLICE_BYTES: Final = 256 << 10
# Answers that are no objects are taken for objects with this one field.
PLAIN: Final = "value"
_MISSING: Final = object()
_EXACT: Final = 1 << 53  # a double holds every whole number up to this one
_LONG: Final = 1 << 63

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "numbers": pa.list_(pa.float64()),
    "json": pa.string(),
}
# The kinds of values that a column of each kind holds.
_HOLDS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"int", "long"}),
    "float": frozenset({"float", "int"}),
    "bool": frozenset({"bool"}),
    "text": frozenset({"text"}),
    "numbers": frozenset({"numbers"}),
    "json": frozenset({"int", "long", "float", "bool", "text", "numbers", "json"}),
    "null": frozenset(),
}
# Values of these types have one kind, whatever they are.
_KINDS: Final[Mapping[type, str]] = {
    float: "float",
    bool: "bool",
    str: "text",
    dict: "json",
    NoneType: "null",
    object: "missing",
}
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def _kind(value: Any) -> str:
    kind = type(value)
    if kind is int:
        exact = -_EXACT <= value <= _EXACT
        return "int" if exact else "long" if -_LONG <= value < _LONG else "json"
    if kind is list:
        # Lists in the list are not looked into, because they may nest deep.
        types = set(map(type, value))
        return "numbers" if types <= {int, float} and _are_exact(value, types) else "json"
    return _KINDS[kind]


def _are_exact(values: Sequence[Any], types: Collection[type]) -> bool:
    """True if a double holds each whole number of the values. `types`: of the values."""
    if int not in types:
        return True
    whole = values if len(types) == 1 else [value for value in values if type(value) is int]
    return bool(-_EXACT <= min(whole) <= max(whole) <= _EXACT)


def _kinds(values: Sequence[Any]) -> Counter[str]:
    """How many values there are of each kind. Types are counted in C, because nearly all values of
    a field have one type.
    """
    types = Counter(map(type, values))
    if list in types or not _are_exact(values, types):
        return Counter(map(_kind, values))
    return Counter({_KINDS.get(kind, "int"): count for kind, count in types.items()})


class Field(Struct, frozen=True):
    """`column`: the name of its column; None: it was null in all rows, and has none. `is_optional`:
    True if null in the column means that the answer lacks the field.
    """

    name: str
    column: str | None
    kind: str
    is_optional: bool

    @property
    def holds(self) -> frozenset[str]:
        """The kinds of values that fit. In the column, what is null and what is missing look alike:
        which of them it means is the same for all rows.
        """
        return _HOLDS[self.kind] | {"missing" if self.is_optional else "null"}


class Shape(Struct, frozen=True):
    """How the values of one column of JSON are laid out. `is_plain`: they are no objects."""

    is_plain: bool = False
    fields: tuple[Field, ...] = ()

    @property
    def columns(self) -> Iterator[Field]:
        return (field for field in self.fields if field.column is not None)

    @property
    def schema(self) -> list[pa.Field]:
        return [pa.field(field.column, _TYPES[field.kind]) for field in self.columns]


_decode_shapes = msgspec.json.Decoder(dict[str, Shape]).decode


class Layout(NamedTuple):
    """The shapes of the JSON columns `prediction` and `columns`, each beside its typed columns."""

    prediction: Shape
    columns: Shape

    def schema_of(self, plain: pa.Schema) -> pa.Schema:
        """The schema of the file. `plain`: the schema without typed columns."""
        fields = []
        for field in plain:
            shape = self._asdict().get(field.name)
            fields += [*(shape.schema if shape else ()), field]
        about = {SHAPES: _encode(self._asdict())} if self != AS_JSON else None
        return pa.schema(fields, about)

    def table_of(self, group: pa.Table) -> pa.Table:
        """The group with the columns of the file."""
        arrays: list[pa.Array | pa.ChunkedArray] = []
        for name, column in zip(group.column_names, group.columns, strict=True):
            shape = self._asdict().get(name)
            if shape is None:
                arrays.append(column)
            else:
                typed, rest = columns_of(column.combine_chunks(), shape)
                arrays += [*typed, rest]
        return pa.table(arrays, self.schema_of(group.schema))


AS_JSON: Final = Layout(Shape(), Shape())


def layout_of(group: pa.Table) -> Layout:
    """The layout that suits most rows of the group."""
    taken = {name.lower() for name in group.column_names}
    prediction, columns = (group[name].combine_chunks() for name in Layout._fields)
    return Layout(
        shape_of(prediction, "prediction", taken, is_named_alone=False),
        shape_of(columns, "columns", taken, is_named_alone=True),
    )


def layout_in(schema: pa.Schema) -> Layout:
    """The layout of a file with this schema. Raises `ValueError` for one that is not ours."""
    about = (schema.metadata or {}).get(SHAPES)
    return AS_JSON if about is None else Layout(**_decode_shapes(about))


def shape_of(texts: pa.Array, prefix: str, taken: set[str], *, is_named_alone: bool) -> Shape:
    """The shape of most of these JSON texts. A column is called `prefix.FIELD`, or `FIELD` if
    `is_named_alone`. `taken`: the names of columns that are there, in lower case, because many
    databases do not tell `Row` from `row`; the new names are added.
    """
    objects, plain = _Seen(), _Seen()
    for values in _decoded(texts):
        objects.add([value for value in values if type(value) is dict])
        plain.add(
            [{PLAIN: value} for value in values if type(value) is not dict and value is not None]
        )
    is_plain = plain.rows > objects.rows
    seen = plain if is_plain else objects
    if len(seen.kinds) > MOST_FIELDS:
        return Shape()
    fields, taken_now = [], set(taken)
    for name, kinds in seen.kinds.items():
        kind, column = _common(kinds), None
        if kind != "null":
            column = name if is_named_alone and name else f"{prefix}.{name}"
            if column.lower() in taken_now:
                column = f"{prefix}.{name}"
            if column.lower() in taken_now:
                return Shape()
            taken_now.add(column.lower())
        fields.append(Field(name, column, kind, kinds.total() - kinds["missing"] < seen.rows))
    if is_plain and fields[0].kind == "json":
        return Shape()
    taken |= taken_now
    return Shape(is_plain, tuple(fields))


class _Seen:
    """The kinds of each field's values, in some objects."""

    def __init__(self) -> None:
        self.rows = 0
        self.kinds: dict[str, Counter[str]] = {}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows += len(rows)
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if len(self.kinds) > MOST_FIELDS:
                return
            kinds = _kinds([row.get(name, _MISSING) for row in rows])
            self.kinds.setdefault(name, Counter()).update(kinds)


def _common(kinds: Counter[str]) -> str:
    """The kind of column that holds most values."""
    held = {
        kind: sum(kinds[hold] for hold in holds)
        for kind, holds in _HOLDS.items()
        if kind != "json" and (kind != "float" or kinds["float"])
    }
    held["json"] = kinds["json"]
    return max(held, key=held.__getitem__) if any(held.values()) else "null"


def columns_of(
    texts: pa.Array, shape: Shape
) -> tuple[list[pa.ChunkedArray], pa.Array | pa.ChunkedArray]:
    """The columns of the shape; and the texts that do not fit, null for those that do."""
    if not shape.fields:
        return [], texts
    parts: list[list[pa.Array]] = [[] for _ in shape.columns]
    rest: list[pa.Array] = []
    start = 0
    for values in _decoded(texts):
        own = texts.slice(start, len(values)).to_pylist()
        start += len(values)
        rows = _fitting(shape, values)
        for part, column in zip(parts, _arrays(shape, rows, own), strict=True):
            part.append(column)
        unfit = (text if row is None else None for row, text in zip(rows, own, strict=True))
        rest.append(pa.array(unfit, pa.string()))
    typed = [
        pa.chunked_array(part, _TYPES[field.kind])
        for part, field in zip(parts, shape.columns, strict=True)
    ]
    return typed, pa.chunked_array(rest, pa.string())


def _fitting(shape: Shape, values: Sequence[Any]) -> Sequence[dict[str, Any] | None]:
    """The values as objects whose fields fit the columns; None for one that does not fit."""
    rows = [
        None
        if value is None or (type(value) is dict) is shape.is_plain
        else {PLAIN: value}
        if shape.is_plain
        else value
        for value in values
    ]
    objects = [row for row in rows if row is not None]
    extra = sum(map(len, objects))
    fits = True
    for field in shape.fields:
        kinds = _kinds([row.get(field.name, _MISSING) for row in objects])
        extra -= len(objects) - kinds["missing"]
        fits = fits and {kind for kind, count in kinds.items() if count} <= field.holds
    return rows if fits and not extra else [_fit(shape, row) for row in rows]


def _fit(shape: Shape, row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    kinds = {field: _kind(row.get(field.name, _MISSING)) for field in shape.fields}
    known = sum(kind != "missing" for kind in kinds.values())
    if known < len(row) or any(kind not in field.holds for field, kind in kinds.items()):
        return None
    return row


def _arrays(
    shape: Shape, rows: Sequence[dict[str, Any] | None], texts: Sequence[str | None]
) -> Iterator[pa.Array]:
    raw: Sequence[dict[str, Raw] | None] = ()
    if any(field.kind == "json" for field in shape.columns):
        fitting = (text for text, row in zip(texts, rows, strict=True) if row is not None)
        wanted = iter(_decode_fields(_joined(fitting)))
        raw = [None if row is None else next(wanted) for row in rows]
    for field in shape.columns:
        values = [None if row is None else row.get(field.name) for row in rows]
        if field.kind == "json":
            values = [
                None if value is None or own is None else bytes(own[field.name])
                for value, own in zip(values, raw, strict=True)
            ]
        yield pa.array(values, _TYPES[field.kind])


def texts_of(batch: pa.RecordBatch, shape: Shape, rest: str) -> list[bytes]:
    """The JSON texts that these columns were made of. `rest`: the column of those that do not
    fit.
    """
    texts: list[Any] = batch.column(rest).to_pylist()
    columns = {field: batch.column(field.column).to_pylist() for field in shape.columns}
    for index, text in enumerate(texts):
        if text is not None or not shape.fields:
            texts[index] = b"null" if text is None else text.encode()
            continue
        fields = {}
        for field in shape.fields:
            value = columns[field][index] if field in columns else None
            if value is not None and field.kind == "json":
                value = Raw(value.encode())
            if value is not None or not field.is_optional:
                fields[field.name] = value
        texts[index] = _encode(fields[PLAIN] if shape.is_plain else fields)
    return texts


def _decoded(texts: pa.Array) -> Iterator[list[Any]]:
    """The values of the texts, in slices of about `SLICE_BYTES`. Texts that cannot be decoded, such
    as ones that nest too deep, give None, as rows without a text do.
    """
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(texts):
        before = int(ends[start] - sizes[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + SLICE_BYTES)))
        own = texts.slice(start, stop - start).to_pylist()
        try:
            yield msgspec.json.decode(_joined(own))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            yield [_alone(text) for text in own]
        start = stop


def _alone(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _joined(texts: Iterable[str | None]) -> str:
    return f"[{','.join(text or 'null' for text in texts)}]"
