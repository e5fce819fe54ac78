"""Pictures, recordings and videos as rows of numbers, on a real bucket, topic and TorchServe."""

import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest_asyncio
from PIL import Image, ImageOps

from tests.formats.recordings import RATE, frames_of, recording, tone, video
from tests.support.deployed_model import DeployedModel, deployed
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

HANDLER = Path(__file__).parents[1] / "support" / "digest_handler.py"
PICTURES = 60
BROKEN = 17
BEGIN_MS = 1_795_262_400_000


@pytest_asyncio.fixture(loop_scope="function")
async def model(services: Services) -> AsyncIterator[DeployedModel]:
    async with deployed(services, "digests", handler=HANDLER) as model:
        yield model


def digest(row: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    return hashlib.sha256(row.astype("<f4").tobytes()).hexdigest()


async def answers(
    broker: Broker, topics: Topics, environ: dict[str, str], messages: list[Message], rows: int
) -> list[dict[str, Any]]:
    """All records of one partition, in its order."""
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, messages)
        await broker.until_answered(topics.output, rows)
        assert await worker.stop() == 0
    records = await broker.records(topics.output)
    return [record.document for number in sorted(records) for record in records[number]]


def picture(number: int) -> bytes:
    """Noise, now and then on its side."""
    values = np.random.default_rng(number).integers(0, 256, (30, 40 + number, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 1 + number % 8
    out = io.BytesIO()
    Image.fromarray(values).save(out, "JPEG", exif=exif)
    return out.getvalue()


def pixels(data: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    return small(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))


def small(image: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = np.asarray(image.resize((24, 16), Image.Resampling.BILINEAR)).astype(np.float32)
    return (values / np.float32(255)).transpose(2, 0, 1)


async def test_a_recording_and_a_video_with_the_times_of_their_rows(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, model: DeployedModel
) -> None:
    samples = tone(RATE * 10)
    clip = video(60, "mp4", rate=20)
    bodies = {"mic.wav": recording(samples), "cam.mp4": clip, "cut.mp4": clip[:-700]}
    messages = []
    for key, body in bodies.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        messages.append(
            Message({"bucket": bucket, "key": key, "stream": key, "event_time": BEGIN_MS}, 0)
        )
    heard = [
        (BEGIN_MS + 125 * number, digest(samples[1000 * number : 1000 * number + 2000, 0]))
        for number in range(79)
    ]
    seen = [
        (BEGIN_MS + 100 * number, digest(small(Image.fromarray(frame))))
        for number, frame in enumerate(frames_of(clip)[::2])
    ]
    environ = environment(
        services, topics, MODEL__NAME=model.name, MODEL__REQUEST="float32", ROWS__FPS=10,
        ROWS__IMAGE_SIZE="24x16", ROWS__IMAGE_SCALE="0-1", ROWS__WINDOW_MS=250, ROWS__HOP_MS=125,
    )  # fmt: skip
    found = await answers(broker, topics, environ, messages, len(heard) + len(seen) + 1)
    assert [(one["event_time"], one["prediction"]) for one in found[:-1]] == heard + seen
    assert [one["row"] for one in found] == [*range(79), *range(30), None]
    assert found[-1]["error"]["code"] == "bad_format"


async def test_a_folder_of_pictures(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, model: DeployedModel
) -> None:
    expected, messages = [], []
    for number in range(PICTURES):
        data, key = picture(number), f"shots/{number:03}.jpg"
        is_broken = number == BROKEN
        s3.put_object(Bucket=bucket, Key=key, Body=data[:-400] if is_broken else data)
        expected.append("bad_row" if is_broken else digest(pixels(data)))
        messages.append(Message({"bucket": bucket, "key": key, "stream": "cam"}, 0))
    environ = environment(
        services, topics, MODEL__NAME=model.name, MODEL__REQUEST="float32",
        ROWS__IMAGE_SIZE="24x16", ROWS__IMAGE_SCALE="0-1",
    )  # fmt: skip
    found = await answers(broker, topics, environ, messages, PICTURES)
    assert [one["prediction"] or one["error"]["code"] for one in found] == expected
