"""What is compiled from aiokafka's schemas writes and reads what aiokafka does."""

import importlib
import pkgutil
import random
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from aiokafka import protocol
from aiokafka.protocol.fetch import FetchResponse_v11
from aiokafka.protocol.struct import Struct
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
    UInt32,
)

from penstock.adapters.kafka.inside.compiled_schemas import decoder, encoder, use_compiled_schemas

BITS = {Int8: 8, Int16: 16, Int32: 32, Int64: 64}


def schemas() -> Iterator[Schema]:
    for module in pkgutil.iter_modules(protocol.__path__):
        importlib.import_module(f"aiokafka.protocol.{module.name}")
    kinds = [Struct]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.__module__.startswith(protocol.__name__):
            yield kind.SCHEMA


def value(field: Any, chance: random.Random) -> Any:
    """A value that the field can carry, often the one at its limit."""
    if field in BITS:
        most = 1 << (BITS[field] - 1)
        return chance.choice([-most, -1, 0, 1, most - 1, chance.randrange(-most, most)])
    if field is UInt32:
        return chance.randrange(1 << 32)
    if field in (Boolean, Float64):
        return field is Boolean or chance.random()
    if isinstance(field, String):
        return chance.choice(["", "a", "ü" * 9])
    if isinstance(field, Schema):
        return tuple(value(one, chance) for one in field.fields)
    if isinstance(field, Array):
        return [value(field.array_of, chance) for _ in range(chance.randrange(4))]
    return {} if field is TaggedFields else chance.choice([b"", b"\0x", None])


@pytest.mark.parametrize("seed", range(3))
def test_every_schema_is_written_and_read_as_by_aiokafka(seed: int) -> None:
    chance = random.Random(seed)
    for schema in schemas():
        item = value(schema, chance)
        raw = schema.encode(item)
        assert encoder(schema)(item) == raw
        before = b"head"
        values, end = decoder(schema)(before + raw + b"tail", len(before))
        assert (values, end) == (schema.decode(BytesIO(raw)), len(before + raw))


@pytest.mark.parametrize(
    "nothing", [String("utf-8"), Bytes, Array(("number", Int32), ("text", String()))]
)
def test_a_value_may_be_missing(nothing: Any) -> None:
    schema = Schema(("nothing", nothing), ("number", Int8))
    assert encoder(schema)((None, 7)) == schema.encode((None, 7))
    assert decoder(schema)(schema.encode((None, 7)), 0)[0] == (None, 7)


def test_what_breaks_off_or_does_not_fit_is_the_error_that_aiokafka_raises() -> None:
    use_compiled_schemas()
    partition = (0, 0, 9, 9, 0, [(1, 2)], -1, b"records")
    raw = FetchResponse_v11(0, 0, 0, [("refs", [partition])]).encode()
    assert FetchResponse_v11.decode(raw).topics == [("refs", [partition])]
    for stop in range(len(raw)):
        with pytest.raises(ValueError, match="FetchResponse_v11"):
            FetchResponse_v11.decode(raw[:stop])
    with pytest.raises(ValueError, match="1099511627776"):
        FetchResponse_v11(1 << 40, 0, 0, []).encode()
    with pytest.raises(ValueError, match="values to unpack"):
        FetchResponse_v11(0, 0, 0, [("refs",)]).encode()
