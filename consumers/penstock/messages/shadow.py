"""The shadow topic's values: rows on which two models disagree, and summaries of all compared rows.

Rule: counts are sums over summaries; those with one `id` count once. Disagreements are examples.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.messages.prediction import ObjectId, Source, printable
from penstock.messages.reference import Count, decoder_of


class ModelId(Struct, frozen=True, omit_defaults=True):
    """A model: its name in the configuration, and its version if known."""

    name: str
    version: str | None = None


class Said(Struct, frozen=True, omit_defaults=True):
    """The answer of a model. If `prediction` is null and there is an `error`, the row was
    rejected.
    """

    model: str
    prediction: Any
    model_version: str | None = None
    error: str | None = None


class Disagreement(Struct, kw_only=True, tag_field="kind", tag="disagreement"):
    """A row on which two models disagree. `id`: the id of the row's record on the output topic;
    `at`: when the answers were compared, in epoch milliseconds.
    """

    v: Annotated[int, Meta(ge=1)] = 1
    id: str
    stream: str
    source: Source
    object: ObjectId | None
    member: str | None = None
    row: Count
    at: Count
    live: Said
    shadow: Said


class Summary(Struct, kw_only=True, tag_field="kind", tag="summary"):
    """The counts of one worker's comparison between `since` and `until` (epoch milliseconds).
    Records with the same `id` are repeats of one summary. `streams`: for each stream's name, the
    number of its compared rows and of its agreed rows; some streams count together as `(others)`.
    The sums over all streams are `rows` and `agreed`. Two kinds of rows were not compared:
    `dropped` rows, for which there was no room, and `unanswered` rows, which the shadow did not
    answer. `unsent` counts disagreements without a record, and `unsent_why` counts them by reason:
    `many` came at once, too `long` for a record, or `unwritten` as the topic was away. `live_took`
    and `shadow_took` count calls by time: the entry with the key k counts calls of up to
    0.1 ms * 10^(k/20).
    """

    v: Annotated[int, Meta(ge=1)] = 1
    id: str
    since: Count
    until: Count
    live: ModelId
    shadow: ModelId
    tolerance: float
    pointers: tuple[str, ...]
    rows: Count
    agreed: Count
    streams: dict[str, tuple[Count, Count]]
    dropped: Count
    unanswered: Count
    unsent: Count
    unsent_why: dict[str, Count] = {}
    live_took: dict[int, Count]
    shadow_took: dict[int, Count]


decode_shadow: Callable[[bytes], Disagreement | Summary] = decoder_of(
    Disagreement | Summary, "a record of a shadow topic"
)
_encoder = msgspec.json.Encoder()


def said(model: str, version: str | None, prediction: bytes, error: str | None) -> Said:
    """A `Said` of these values. `prediction`: JSON text, which is inserted as it is."""
    return Said(model, Raw(prediction), version, None if error is None else printable(error))


def encode_shadow(record: Disagreement | Summary) -> bytes:
    return _encoder.encode(record)
