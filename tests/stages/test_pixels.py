"""Pictures as numbers, through the pipeline: decoded off the event loop."""

import io
from collections.abc import Callable
from typing import TypeVar

from PIL import Image

from consumers.formats.base import RowOptions, Run
from consumers.formats.pixels import PixelOptions
from consumers.testing.virtual_time import virtual_time
from tests.support.pipelines import World, run_to_end

T = TypeVar("T")


@virtual_time
async def test_even_a_small_picture_is_decoded_in_a_thread() -> None:
    in_thread: list[object] = []

    async def offload(decode: Callable[[bytes], T], data: bytes) -> T:
        found = decode(data)
        in_thread.append(found)
        return found

    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "JPEG")
    world = World(offload=offload).with_settings(rows=RowOptions(image=PixelOptions(4, 3)))
    world.announce("a.jpg", out.getvalue())
    await run_to_end(world, 1)
    assert [record["prediction"] for record in world.records()] == [{"sum": 0.0}]
    decoded = [run for runs in in_thread if isinstance(runs, list) for run in runs]
    assert [run.rows for run in decoded if isinstance(run, Run)] == [1]
