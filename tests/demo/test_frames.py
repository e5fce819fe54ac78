"""The demo's cameras send pictures, which the embedded model reads and the page shows."""

import io
import re
import signal
import urllib.request
from pathlib import Path

import numpy as np
import orjson
from PIL import Image

from penstock.tools.demo.streams import (
    BRIGHT,
    BRIGHT_SIZE,
    FRAME_HEIGHT,
    FRAME_WIDTH,
    frame,
)
from penstock.tools.embedded.model_server import seen
from tests.demo.test_demo import assert_nothing_is_left, demo, finish, lines_until


def test_the_model_finds_what_crosses_the_picture() -> None:
    for index in range(8):
        for number in (0, 7, 100):
            body = frame(index, number).body
            found = seen(body)
            assert found is not None
            left, top, width, height = found["box"]
            assert (found["label"], found["score"], height, width) == ("vehicle", 1.0, *BRIGHT_SIZE)
            image = np.asarray(Image.open(io.BytesIO(body)))
            assert image.shape == (FRAME_HEIGHT, FRAME_WIDTH, 3)
            assert (image[top : top + height, left : left + width] == BRIGHT).all()


def test_the_model_sees_nothing_in_bytes_that_are_no_picture_of_the_demo() -> None:
    whole = frame(1, 1).body
    assert seen(b"") is None
    assert seen(whole[:60]) is None
    assert seen(whole.replace(b"IDAT", b"tEXt")) is None
    assert seen(bytes(64)) is None


def test_the_first_line_is_the_page_which_shows_the_frames_and_the_proof_holds(
    tmp_path: Path,
) -> None:
    options = ("--frames", "--seconds", "60", "--streams", "3", "--no-browser")
    with demo(tmp_path, *options) as process:
        page = lines_until(process, r"(http://[\d.:]+)/#token=(\S+)")
        assert page.string.startswith("the live page")
        lines_until(process, "kill -9")

        def read(path: str) -> bytes:
            asked = urllib.request.Request(page[1] + path)
            asked.add_header("Authorization", f"Bearer {page[2]}")
            with urllib.request.urlopen(asked) as answer:
                body: bytes = answer.read()
                return body

        samples: list[dict[str, str]] = []
        while not samples:
            samples = orjson.loads(read("/api/samples"))["samples"]
        assert orjson.loads(samples[0]["prediction"])["label"] == "vehicle"
        assert Image.open(io.BytesIO(read(samples[0]["picture"]))).size == (
            FRAME_WIDTH,
            FRAME_HEIGHT,
        )
        process.send_signal(signal.SIGINT)  # enough was seen: the streams end, the proof follows
        code, out, err = finish(process)
    assert (code, err) == (0, ""), out
    assert re.search(r"✔ \d+ rows of 3 streams in \d+ objects: in order, none lost", out)
    assert_nothing_is_left(tmp_path)


def test_frames_are_for_the_embedded_model(tmp_path: Path) -> None:
    with demo(tmp_path, "--frames", "--stack") as process:
        code, _, err = finish(process)
    assert (code, "embedded model" in err) == (2, True)
