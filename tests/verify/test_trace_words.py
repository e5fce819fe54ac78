"""What `penstock trace` says of a frame that it did not find."""

from typing import Any

import orjson

from penstock.verify.trace import Found, Frame, Trace, in_words

SCENE: dict[str, Any] = {
    "v": 1,
    "id": "site-1/1000",
    "site": "site-1",
    "time": 1000,
    "span_ms": 0,
    "revision": 1,
    "closed_by": "complete",
    "members": {},
    "missing": 0,
}


def test_a_frame_that_was_not_found_names_the_topic_where_it_was_looked_for() -> None:
    """The file of a second model often says nothing of the scenes before it."""
    scene = Found("scenes/0/0", 1000, orjson.dumps(SCENE))
    frames = [
        Frame("cam-1", "present", "refs/0/1/0/0", None),
        Frame("cam-2", "missing", None, None),
    ]
    _, lost, absent = in_words(Trace("site-1/1000", None, None, scene, frames), "predictions")
    assert "refs/0/1/0/0, not on predictions" in lost
    assert "scenes.input_topic" in lost
    assert absent.split() == ["cam-2", "missing"]
