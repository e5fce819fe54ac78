"""The frames of four cameras, predicted in order: `python cameras.py [URL]`.

Without frames of your own, it makes ten for each camera in the folder `shots`.
"""

import asyncio
import sys
from pathlib import Path

from PIL import Image

from penstock import predict

SHOTS = Path("shots")


def make_frames() -> None:
    if SHOTS.exists():
        return
    for camera in range(1, 5):
        folder = SHOTS / f"cam-{camera}"
        folder.mkdir(parents=True)
        for frame in range(10):
            picture = Image.new("L", (64, 48), 20 * camera + 2 * frame)
            picture.save(folder / f"{frame:04}.png")


async def main(url: str) -> None:
    # Results come in the order of the objects, while later frames are still read.
    async for result in predict(
        f"{SHOTS}/*/*.png",
        model=url,
        protocol="http",
        request="b64",
        config={"model": {"answers": "/predictions"}, "rows": {"format": "image"}},
    ):
        if result.error is None:
            print(result.object.key, result.prediction["brightness"])
        else:
            print(result.object.key, result.error.code, result.error.message)


make_frames()
asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9002/look"))
