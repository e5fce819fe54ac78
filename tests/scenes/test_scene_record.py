"""A decision is published as bytes that say all of it, the same each time."""

import json
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from penstock.messages.codec import Inline, decode
from penstock.messages.json_schemas import FOLDER
from penstock.messages.prediction import Constants, RecordFrame, Source
from penstock.messages.reference import SchemaError
from penstock.messages.scene import decode_late, decode_scene
from penstock.messages.times import epoch_ms
from penstock.scenes.core.arrival import read_arrival
from penstock.scenes.core.rules import Place, Rules, SiteStreams
from penstock.scenes.core.site import Site
from penstock.scenes.records import LateTopic, SceneRecords
from tests.scenes.flows import EPOCH

SITE = {"yard": ["a", "b", "c", "d"]}


def frame(member: str, offset: int, time: Any) -> RecordFrame:
    of = Constants(
        source=Source("refs", 0, offset),
        object_index=0,
        stream=f"yard/{member}",
        object=None,
        event_time=time,
        attributes=None,
        model="m",
        model_version=None,
    )
    return RecordFrame(of)


def site(**changes: Any) -> Site:
    """With a, b and c heard of one instant: b rejected, c with a text where a has a number."""
    made = Site("yard", Rules(listed=SITE, **changes))
    iso = "2026-11-20T20:56:57.400+00:00"
    values: list[tuple[str, bytes]] = [
        ("a", frame("a", 1, EPOCH).rows(0, [b'{"score": 0.50,"x":[7]}'], None)[0]),
        ("b", frame("b", 2, EPOCH).rejected(0, 1, "bad_row", "no", None)[0]),
        ("c", frame("c", 3, iso).rows(0, [b'{"score":"high"}'], None)[0]),
    ]
    for member, value in values:
        made.arrive(read_arrival(value, EPOCH), member, EPOCH)
    made.tick(EPOCH + 100)
    return made


def valid(name: str, value: bytes) -> Any:
    schema = orjson.loads((FOLDER / f"{name}.v1.schema.json").read_bytes())
    Draft202012Validator(schema).validate(orjson.loads(value))
    return orjson.loads(value)


def test_a_scene_says_what_everybody_said() -> None:
    (decided,) = site().take().scenes
    value = SceneRecords().scene("yard", decided)
    scene = valid("scene", value)
    assert scene["id"] == f"yard/{EPOCH}"
    assert scene["members"] == {
        "a": {
            "status": "present",
            "id": "refs/0/1/0/0",
            "event_time": EPOCH,
            "model": "m",
            "prediction": {"score": 0.5, "x": [7]},
        },
        "b": {
            "status": "rejected",
            "id": "refs/0/2/0/0",
            "event_time": EPOCH,
            "model": "m",
            "error": {"code": "bad_row", "message": "no"},
        },
        "c": {
            "status": "present",
            "id": "refs/0/3/0/0",
            "event_time": EPOCH,
            "model": "m",
            "prediction": {"score": "high"},
        },
        "d": {"status": "missing"},
    }
    assert (scene["missing"], scene["evicted"]) == (1, 0)
    assert (scene["closed_by"], scene["revision"]) == ("quorum", 1)
    assert b'{"score": 0.50,"x":[7]}' in value
    assert decode_scene(value).time == EPOCH
    assert SceneRecords().scene("yard", decided) == value


@pytest.mark.parametrize(
    ("pointer", "fill", "row"),
    [
        ("/score", None, [0.5, None, None, None]),
        ("/score", -1.0, [0.5, -1, -1, -1]),
        ("/x/0", 0.0, [7, 0, 0, 0]),
    ],
)
def test_a_scene_is_the_input_of_a_second_model(pointer: str, fill: Any, row: list[Any]) -> None:
    (decided,) = site().take().scenes
    value = SceneRecords(pointer, fill).scene("yard", decided)
    message = decode(value)
    assert isinstance(message, Inline)
    assert [orjson.loads(bytes(each)) for each in message.rows] == [row]
    assert message.event_time == EPOCH
    assert message.attributes == {"scene": f"yard/{EPOCH}", "revision": 1}
    valid("scene", value)


def test_a_late_prediction_is_kept_whole() -> None:
    made = site()
    made.take()
    (value,) = frame("d", 4, EPOCH).rows(0, [b"1"], None)
    made.arrive(read_arrival(value, EPOCH), "d", EPOCH + 200)
    (refused,) = made.take().refused
    (out,) = LateTopic("late", lambda *_: True, is_dropped=False).refused("yard", refused)
    assert out.value is not None
    record = valid("late", out.value)
    assert record["record"] == json.loads(value)
    assert (record["id"], record["reason"]) == ("refs/0/4/0/0", "late")
    assert decode_late(out.value).scene == f"yard/{EPOCH}"


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b'{"id":"a"}'])
def test_what_is_no_prediction(value: bytes) -> None:
    with pytest.raises(SchemaError):
        read_arrival(value, 0)


def test_markers() -> None:
    empty = read_arrival(frame("a", 1, None).marker(0, None), 0)
    failed = read_arrival(frame("a", 1, EPOCH).marker(0, ("not_found", "no")), 0)
    assert (empty.is_empty, failed.is_empty) == (True, False)
    assert failed.position > read_arrival(frame("a", 1, 0).last_row(9, b"1", None, 10), 0).position


@pytest.mark.parametrize("wrong", [None, True, 1.5, "yesterday", [], "0000-01-01"])
def test_what_is_no_time(wrong: object) -> None:
    assert epoch_ms(wrong) is None


def test_places() -> None:
    streams = SiteStreams("(?P<site>[^/]+)/(?P<member>.+)")
    assert streams.place("a/b/c") == Place("a", "b/c")
    assert streams.place("alone") is None
    assert streams.place("alone") is None
