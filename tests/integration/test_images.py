"""Frames through the whole chain: a real bucket, topic and TorchServe, the shipped handler."""

import asyncio
import io
import os
import re
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import pytest_asyncio
from PIL import Image

import penstock.tools.handlers
from tests.formats.recordings import video
from tests.support.deployed_model import DeployedModel, deployed
from tests.support.services import ROOT, Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.warm_start import PENSTOCK
from tests.support.worker import EXIT_S, environment, running_worker

FRAMES = 40
STREAMS = 4
BROKEN = 17
HANDLER = Path(__file__).parents[1] / "support" / "frame_handler.py"
SHIPPED = Path(penstock.tools.handlers.__file__).with_name("rows_handler.py")


def frame(number: int, kind: str) -> tuple[bytes, list[int]]:
    """A picture of noise, and its size."""
    size = (40 + number, 30)
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue(), list(size)


@pytest_asyncio.fixture(loop_scope="function", params=[1, 8])
async def model(services: Services, request: pytest.FixtureRequest) -> AsyncIterator[DeployedModel]:
    """The frames' model, on a server that gathers so many requests. Where each is a row, it has
    time for them: those of a worker on a busy machine come many milliseconds apart.
    """
    is_single = request.param == 1 or request.node.callspec.params.get("form") != "raw"
    async with deployed(
        services, "frames", handler=HANDLER, extra_files=[SHIPPED], batch_size=request.param,
        batch_delay_ms=20 if is_single else 500,
    ) as model:  # fmt: skip
        model.batch_size = request.param
        yield model


def answered(found: dict[str, Any]) -> object:
    """The size of a frame that was read, else the error's code."""
    prediction = found["prediction"]
    return found["error"]["code"] if prediction is None else prediction["size"]


@pytest.mark.parametrize("form", ["bytes", "b64", "raw"])
async def test_frames_are_answered_one_each_in_order(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    model: DeployedModel,
    form: str,
) -> None:
    expected: dict[str, list[object]] = {f"cam-{number}": [] for number in range(STREAMS)}
    messages = []
    for number in range(FRAMES):
        data, size = frame(number, "PNG" if number % 3 else "JPEG")
        stream, key = f"cam-{number % STREAMS}", f"cam-{number % STREAMS}/{number:03}.jpg"
        s3.put_object(Bucket=bucket, Key=key, Body=data[:80] if number == BROKEN else data)
        expected[stream].append("bad_row" if number == BROKEN else size)
        value = {"bucket": bucket, "key": key, "stream": stream}
        messages.append(Message(value, number % 4))
    environ = environment(
        services, topics, MODEL__NAME=model.name, MODEL__REQUEST=form,
        MODEL__MANAGEMENT_URL=f"unix://{services.management_socket}",
    )  # fmt: skip
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, messages)
        await broker.until_answered(topics.output, FRAMES)
        assert await worker.stop() == 0
    found: dict[str, list[object]] = {stream: [] for stream in expected}
    gathered = []
    for records in (await broker.records(topics.output)).values():
        for record in records:
            found[record.document["stream"]].append(answered(record.document))
            gathered.append((record.document["prediction"] or {}).get("gathered", 0))
    assert found == expected
    if form == "raw" and model.batch_size > 1:
        # As many calls are in flight as the server's own batches need to be full.
        assert max(gathered) == model.batch_size


async def test_a_shard_is_a_row_a_sample(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, model: DeployedModel
) -> None:
    out, sizes = io.BytesIO(), []
    with tarfile.open(fileobj=out, mode="w:gz") as shard:
        for number in range(12):
            data, size = frame(number, "JPEG")
            sizes.append(size)
            files = [("cls", b"7"), ("jpg", data), ("json", b"{}")]
            for ending, body in files:
                info = tarfile.TarInfo(f"train/{number:06}.{ending}")
                info.size = len(body)
                shard.addfile(info, io.BytesIO(body))
    s3.put_object(Bucket=bucket, Key="shard.tar.gz", Body=out.getvalue())
    environ = environment(services, topics, MODEL__NAME=model.name, MODEL__REQUEST="bytes")
    async with running_worker(environ) as worker:
        value = {"bucket": bucket, "key": "shard.tar.gz"}
        await broker.publish(topics.input, [Message(value)])
        await broker.until_answered(topics.output, 12)
        assert await worker.stop() == 0
    records = [
        one.document for some in (await broker.records(topics.output)).values() for one in some
    ]
    assert [answered(record) for record in records] == sizes
    assert [record["member"] for record in records] == [f"train/{n:06}.jpg" for n in range(12)]


async def on_a_terminal(environ: dict[str, str], *arguments: str) -> tuple[int, bytes, str]:
    """Run `penstock predict` with its standard error on a terminal; what it showed there."""
    master, slave = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(*PENSTOCK, "predict", *arguments),
        cwd=ROOT,
        env=environ | {"TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    shown = asyncio.create_task(asyncio.to_thread(_read_all, master))
    async with asyncio.timeout(EXIT_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, await shown


def _read_all(terminal: int) -> str:
    """Linux answers EIO where nobody has the other side any more."""
    shown = b""
    with suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    return shown.decode(errors="replace")


async def test_predict_reads_a_folder_of_frames_and_a_video_and_shows_how_far_it_is(
    services: Services, topics: Topics, model: DeployedModel, tmp_path: Path
) -> None:
    shots, sizes = tmp_path / "shots", []
    shots.mkdir()
    for number in range(30):
        data, size = frame(number, "JPEG")
        (shots / f"{number:03}.jpg").write_bytes(data)
        sizes.append(size)
    (tmp_path / "clip.mp4").write_bytes(video(25))
    environ = environment(services, topics, MODEL__NAME=model.name)
    urls = (str(shots / "*.jpg"), str(tmp_path / "clip.mp4"))
    code, out, shown = await on_a_terminal(environ, *urls, "--request", "bytes")
    records = [orjson.loads(line) for line in out.splitlines()]
    assert (code, len(records)) == (0, 55), shown
    assert [answered(record) for record in records] == sizes + [[64, 48]] * 25
    assert [record["row"] for record in records] == [0] * 30 + list(range(25))
    assert "55 rows of 31 objects" in shown
    # Drawn over and over, each time with what is done by then.
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert re.search(r"\d+ of +31 objects, \d+ rows +[\d:]+ left [\d:]+ *\r", plain), shown
