"""The values of the scene topic and of its late topic.

Rule: answers are JSON text and inserted as they came; the same decision always gives the same
bytes.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

from penstock.messages.prediction import Failure
from penstock.messages.reference import Count, OutputTime, decoder_of

NULL = Raw(b"null")

# The code of a scene whose predictions are too large for its record, and of the letter about it.
TOO_LARGE = "result_too_large"
# The reason in the letter of a prediction that the repartition topic did not take.
NOT_TAKEN = "result_refused"

Status = Literal["present", "rejected", "missing", "evicted"]
# Why a scene closed. complete: every member is in the scene. members: every expected member is in
# the scene, and the other members are evicted. quorum: enough members are in the scene, and the
# patience is over. deadline: the deadline is over.
ClosedBy = Literal["complete", "members", "quorum", "deadline"]


class Seat(Struct, kw_only=True, omit_defaults=True):
    """A member's place in a scene. `id`: the id of its prediction. `model`: the model that made the
    prediction. A member without an id is missing (expected, but not there in time) or evicted
    (silent for longer than its lease). `prediction` is any JSON.
    """

    status: Status
    id: str | None = None
    event_time: OutputTime | None = None
    model: str | None = None
    prediction: Raw = field(default_factory=Raw)
    error: Failure | None = None


class Scene(Struct, kw_only=True, omit_defaults=True):
    """One record of the scene topic: the predictions of all members for one instant. `id` is
    `site/time`; `time`: epoch milliseconds; `span_ms`: the time between the scene's earliest and
    its latest prediction. A higher `revision` of the same scene adds members that came late.
    `closed_by` is `complete` only if every member is in the scene; `missing` and `evicted` count
    the members with these statuses. If there is an `error`, members have a status and an id, but no
    prediction. If the record has `inline`, `event_time` and `attributes`, it is also a valid input
    message for a second `penstock run`.
    """

    v: Annotated[int, Meta(ge=1)]
    id: str
    site: str
    time: int
    span_ms: Count
    revision: Annotated[int, Meta(ge=1)]
    closed_by: ClosedBy
    members: dict[str, Seat]
    missing: Count
    evicted: Count = 0
    error: Failure | None = None
    inline: list[list[float | None]] | None = None
    event_time: int | None = None
    attributes: dict[str, Any] | None = None


class Late(Struct, kw_only=True):
    """One record of the late topic. `reason`: why a prediction is in no scene, or why the scene
    with this `id` was published without predictions. If the record is about a prediction, it has
    three more fields. `scene`: the scene in which the prediction would have been. `model`: the
    model that made the prediction. `record`: the prediction's own record as it came; null if that
    record was too large for this topic.
    """

    v: Annotated[int, Meta(ge=1)]
    id: str
    reason: str
    site: str | None
    member: str | None
    scene: str | None
    record: Raw
    model: str | None = None


decode_scene: Callable[[bytes], Scene] = decoder_of(Scene, "a scene")
decode_late: Callable[[bytes], Late] = decoder_of(Late, "a late prediction")
_encode = msgspec.json.Encoder().encode


def seat_json(status: Status, id: str, event_time: int | None, model: str, **answer: Raw) -> Raw:
    """The place of a member that answered. `answer`: its `prediction` or its `error`, under that
    name.
    """
    named = {"model": model} if model else {}
    seat = {"status": status, "id": id, "event_time": event_time}
    return Raw(_encode(seat | named | answer))


def encode_scene(
    *,
    site: str,
    time: int,
    span_ms: int,
    revision: int,
    closed_by: ClosedBy,
    seats: dict[str, Raw],
    absent: dict[str, Status],
    error: Failure | None = None,
    inline: list[float | None] | None = None,
) -> bytes:
    """The record of a scene as bytes. `seats`: for the name of each member that answered, its
    encoded place. `absent`: for the name of each other member, its status.
    """
    members: dict[str, Any] = {
        name: seats[name] if name in seats else {"status": absent[name]}
        for name in sorted({*seats, *absent})
    }
    scene: dict[str, Any] = {
        "v": 1,
        "id": f"{site}/{time}",
        "site": site,
        "time": time,
        "span_ms": span_ms,
        "revision": revision,
        "closed_by": closed_by,
        "members": members,
        "missing": sum(status == "missing" for status in absent.values()),
        "evicted": sum(status == "evicted" for status in absent.values()),
    }
    if error is not None:
        scene["error"] = error
    if inline is not None:
        scene["inline"] = [inline]
        scene["event_time"] = time
        scene["attributes"] = {"scene": scene["id"], "revision": revision}
    return _encode(scene)


def encode_late(
    *,
    id: str,
    reason: str,
    site: str | None,
    member: str | None,
    scene: str | None,
    model: str | None,
    record: bytes,
) -> bytes:
    return _encode(
        {
            "v": 1,
            "id": id,
            "reason": reason,
            "site": site,
            "member": member,
            "scene": scene,
            "model": model,
            "record": Raw(record),
        }
    )
