"""A real image model, twice: by the handler of docs/models.md and by TorchServe's stock one.

Eight cameras at 20 Hz, their frames written by other programs; every answer is compared with torch.
FRAMES=250 of each camera, 2,000 in all, is the long proof.
"""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.deployed_model import DeployedModel, deployed
from tests.support.foreign_frames import cameras
from tests.support.services import ROOT, Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

FRAMES = int(os.environ.get("FRAMES", "15"))
PERIOD_S = 1 / 20
TORCH = ROOT / "tests" / "support" / "torch_images.py"
SHIPPED = ROOT / "consumers" / "penstock" / "tools" / "handlers" / "rows_handler.py"
# A lost frame is waited for as long as TorchServe takes for all of them on a busy machine.
WITHIN_S = 200 + FRAMES
TOLERANCE = 1e-5


class Way(NamedTuple):
    """How frames reach a handler."""

    handler: str
    request: str
    batch_size: int


WAYS = (Way("frames", "bytes", 1), Way("frames", "raw", 1), Way("image_classifier", "raw", 8))


def torch_answers(python: str, *arguments: object, pictures: list[Path]) -> Any:
    done = subprocess.run(
        [python, TORCH, *map(str, arguments)], input="\n".join(map(str, pictures)),
        capture_output=True, text=True, check=False, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null")


def has_torchvision(python: str | None) -> bool:
    if python is None:
        return False
    return not subprocess.run([python, "-c", "import torchvision"], check=False).returncode


def handler_of_the_page(folder: Path) -> Path:
    """The example in docs/models.md, as a reader would save it."""
    page = (ROOT / "docs" / "models.md").read_text()
    match = re.search(r"as `frames_handler\.py`:\n\n```python\n(.*?)```", page, re.DOTALL)
    assert match
    path = folder / "frames_handler.py"
    path.write_text(match[1])
    return path


def explanations_that_nobody_asks_for(folder: Path) -> Path:
    """The stock handler imports captum for them, which nobody's prediction needs."""
    package = folder / "extra" / "captum"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "attr.py").write_text(
        "class IntegratedGradients:\n    def __init__(self, model): pass\n"
    )
    return package.parent


@asynccontextmanager
async def image_model(services: Services, way: Way, folder: Path) -> AsyncIterator[DeployedModel]:
    net = folder / "net.pt"
    python = services.torch_python or ""
    await asyncio.to_thread(torch_answers, python, "make", net, way.handler, pictures=[])
    stock = way.handler == "image_classifier"
    extra = explanations_that_nobody_asks_for(folder) if stock else SHIPPED
    async with deployed(
        services, "images", handler=way.handler if stock else handler_of_the_page(folder),
        serialized=net, extra_files=[extra], batch_size=way.batch_size,
    ) as model:  # fmt: skip
        yield model


async def announce(
    broker: Broker, topics: Topics, bucket: str, frames: dict[str, list[Path]]
) -> None:
    """A frame of each camera, 20 times a second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for tick in range(FRAMES):
        await asyncio.sleep(max(0.0, began + tick * PERIOD_S - loop.time()))
        messages = []
        for number, (camera, paths) in enumerate(frames.items()):
            key = f"{camera}/{paths[tick].name}"
            messages.append(Message({"bucket": bucket, "key": key, "stream": camera}, number % 4))
        await broker.publish(topics.input, messages)


def chances_in(prediction: Any) -> dict[int, float]:
    """What a handler says of classes: ours of the best one, the stock one of the best five."""
    if "label" in prediction:
        return {prediction["label"]: prediction["score"]}
    return {int(label): chance for label, chance in prediction.items()}


@pytest.mark.timeout(480 + 4 * FRAMES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.handler}-{way.request}")
async def test_every_frame_is_answered_in_order_as_torch_answers_it(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, way: Way,
    tmp_path: Path,
) -> None:  # fmt: skip
    python = services.torch_python
    if python is None or not has_torchvision(python):
        pytest.skip(
            "torchvision is not beside TorchServe's torch: scripts/stack up --with torchvision"
        )
    frames = cameras(tmp_path, FRAMES)
    for camera, paths in frames.items():
        for path in paths:
            s3.put_object(Bucket=bucket, Key=f"{camera}/{path.name}", Body=path.read_bytes())
    async with image_model(services, way, tmp_path) as model:
        environ = environment(
            services, topics, MODEL__NAME=model.name, MODEL__REQUEST=way.request,
            MODEL__MANAGEMENT_URL=f"unix://{services.management_socket}",
        )  # fmt: skip
        async with running_worker(environ) as worker:
            await worker.ready()
            await announce(broker, topics, bucket, frames)
            await broker.until_answered(topics.output, 8 * FRAMES, WITHIN_S)
            assert await worker.stop() == 0
    everything = [path for paths in frames.values() for path in paths]
    expected = await asyncio.to_thread(
        torch_answers, python, "answer", tmp_path / "net.pt", way.handler, pictures=everything
    )
    by_key = dict(zip([f"{p.parent.name}/{p.name}" for p in everything], expected, strict=True))
    found: dict[str, list[str]] = {camera: [] for camera in frames}
    for records in (await broker.records(topics.output)).values():
        for record in records:
            document = record.document
            key = document["object"]["key"]
            found[document["stream"]].append(Path(key).name)
            chances = chances_in(document["prediction"])
            torch_s = by_key[key]
            assert chances == pytest.approx({n: torch_s[n] for n in chances}, abs=TOLERANCE)
            assert max(chances.values()) == pytest.approx(max(torch_s), abs=TOLERANCE)
    assert found == {camera: [path.name for path in paths] for camera, paths in frames.items()}
    # Pictures that all look the same to the network would prove nothing.
    best = [max(chances) for chances in expected]
    assert len({row.index(chance) for row, chance in zip(expected, best, strict=True)}) > 1
    assert max(best) - min(best) > 1000 * TOLERANCE
