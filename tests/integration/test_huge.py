"""Objects that are larger than a worker's memory may grow.

HUGE_MB=2048 is the long proof: three objects of 2 GB and a video of an hour.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.footprint import footprint, idle_model
from tests.support.huge_objects import MAKERS, can_make
from tests.support.services import Services, Topics
from tests.support.worker import environment

# Whole in memory, the smaller ones would be seen, too: a worker without work has about 110 MB.
MB = int(os.environ.get("HUGE_MB", "260"))
MOST_MB = 350
WITHIN_S = 240.0


@pytest.mark.timeout(480 + MB)
@pytest.mark.parametrize("key", MAKERS)
async def test_a_huge_object_goes_through_in_bounded_memory(
    services: Services, bucket: str, s3: Any, key: str, tmp_path: Path
) -> None:
    if not can_make(key):
        pytest.skip("ffmpeg, which makes the video, is not on this machine")
    file = tmp_path / key
    rows = await asyncio.to_thread(MAKERS[key], file, MB)
    with file.open("rb") as body:
        await asyncio.to_thread(s3.put_object, Bucket=bucket, Key=key, Body=body)
    size_mb = file.stat().st_size / 1e6
    file.unlink()
    request = "float32" if key == "a.parquet" else "bytes"
    async with idle_model() as url:
        environ = environment(
            services,
            Topics("none", "none.out", "none.dlq"),
            MODEL__URL=url,
            MODEL__REQUEST=request,
            ROWS__FPS=1,
        )
        seen = await footprint(f"s3://{bucket}/{key}", environ, WITHIN_S)
    assert (seen.code, seen.records) == (0, rows), seen.output
    figures = f"{key}: {size_mb:.0f} MB, peak {seen.peak_mb:.0f}, in all {seen.family_mb:.0f}"
    print(figures)  # noqa: T201  (what the long proof is run for, with pytest -s)
    assert max(seen.peak_mb, seen.family_mb) < MOST_MB
