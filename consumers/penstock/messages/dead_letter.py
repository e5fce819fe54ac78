"""The values of the dead-letter topic: what could not be answered, and where it lies.

Rule: `reference` can be published as it is, and asks for exactly the failed rows. The bytes of a
message are kept only if no reference could be read from it.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from penstock.messages.prediction import ObjectId, Source, encodable, printable
from penstock.messages.reference import (
    Count,
    EventTime,
    OutputTime,
    Reference,
    RowRange,
    decoder_of,
)


class DeadLetter(Struct, kw_only=True):
    """Rows of one object, or a whole object or message, that were answered by an error.

    `object_index`: the index of the object in its message, from 0. `rows`: half-open ranges; None:
    all rows that were asked for. `failed_at`: epoch milliseconds. `attempts`: how often it was
    tried. `key_b64`: the Kafka key of the message, if it is no text and names the stream all the
    same. `value_b64`: the message itself. Only a letter without a `reference` has this field. If
    several such letters are about one message, only the first of them has it. The field is left out
    if it is too large for the topic.
    """

    v: Annotated[int, Meta(ge=1)] = 1
    code: str
    stage: str
    message: str
    attempts: Annotated[int, Meta(ge=1)]
    stream: str
    source: Source
    object_index: Count
    object: ObjectId | None
    member: str | None
    rows: tuple[RowRange, ...] | None
    event_time: OutputTime | None
    failed_at: int
    model: str
    reference: Reference | None
    value_b64: str | UnsetType | None = UNSET
    key_b64: str | UnsetType = UNSET


decode_dead_letter: Callable[[bytes], DeadLetter] = decoder_of(DeadLetter, "a dead letter")
_encoder = msgspec.json.Encoder()


class Unanswered(Struct, kw_only=True, frozen=True):
    """What a letter is about. `rows`: the failed rows; None: all rows that the reference asks for.
    `key`: the key of the stream, if it is not the stream's name. `value`: the original message,
    which is used only if `reference` is None. `again`: if it is False, the letter gets no
    reference, and `reference` only says which object and which rows failed.
    """

    code: str
    stage: str
    message: str
    attempts: int
    stream: str
    source: Source
    object_index: int
    reference: Reference | None
    version: str | None
    member: str | None
    rows: Sequence[RowRange] | None
    event_time: EventTime | None
    failed_at: int
    model: str
    value: bytes | None
    key: bytes | None = None
    again: bool = True


def dead_letter(of: Unanswered) -> bytes:
    """A dead letter as the value of a record. The letter's reference names the stream, so that the
    object stays in that stream under any Kafka key. Raises `SchemaError` if the rows are not
    allowed in a reference.
    """
    about, reference, rows = None, of.reference, of.rows
    stream = encodable(of.stream)
    if reference is not None:
        about = ObjectId(reference.bucket, reference.key, of.version, reference.store)
        rows = reference.rows if rows is None else tuple(rows)
        reference = structs.replace(reference, rows=rows, stream=stream)
    letter = DeadLetter(
        code=of.code,
        stage=of.stage,
        message=printable(of.message),
        attempts=of.attempts,
        stream=stream,
        source=of.source,
        object_index=of.object_index,
        object=about,
        member=None if of.member is None else encodable(of.member),
        rows=None if rows is None else tuple(rows),
        event_time=of.event_time,
        failed_at=of.failed_at,
        model=of.model,
        reference=reference if of.again else None,
        key_b64=UNSET if of.key is None else b64encode(of.key).decode(),
    )
    if letter.reference is None:
        kept = of.value if reference is None else None
        letter.value_b64 = None if kept is None else b64encode(kept).decode()
    return _encoder.encode(letter)
