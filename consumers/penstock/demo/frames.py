"""What the cameras of `demo --frames` and `--scenes` see: something bright crosses the picture.

Rule: frame `number` of camera `index` depends on these two numbers alone. Owner: the demo.
"""

from typing import Final

import numpy as np

from penstock.demo.streams import Made, stream_name
from penstock.formats.pictures.thumbnail import png

HEIGHT: Final = 96
WIDTH: Final = 128
# What crosses, and how far it is at each frame, in pixels.
BRIGHT: Final = (255, 236, 200)
SIZE: Final = (14, 22)
STEP: Final = 3
FORM: Final = "png"


def frame(index: int, number: int) -> Made:
    """The sky and the road of this camera, and what is on the road."""
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[:] = np.linspace((90, 120, 150), (60, 80, 90), HEIGHT)[:, None].astype(np.uint8)
    # Each camera is told by the colour of its road.
    horizon = HEIGHT // 3 + 4 * (index % 4)
    image[horizon:] = (40 + 7 * (index * 5 % 13), 60 + 5 * (index * 7 % 11), 50)
    top = horizon + 6 + (11 * index) % 20
    left = (STEP * number + 29 * index) % (WIDTH - SIZE[1])
    image[top : top + SIZE[0], left : left + SIZE[1]] = BRIGHT
    return Made(f"{stream_name(index)}/{number:06}.{FORM}", png(image).body, 1)
