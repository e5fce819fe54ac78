"""Small recordings and videos, made by the libraries that also read them."""

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import numpy.typing as npt
import soundfile
from av.video.stream import VideoStream

RATE = 8_000

Samples = npt.NDArray[np.float32]


def tone(frames: int, channels: int = 1) -> Samples:
    """Noise of 16 bits."""
    values = np.random.default_rng(frames).integers(-(2**15), 2**15, (frames, channels), np.int16)
    return values.astype(np.float32) / np.float32(2**15)


def recording(
    samples: Samples, format: str = "WAV", subtype: str | None = None, rate: int = RATE
) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=format, subtype=subtype)
    return out.getvalue()


def picture(number: int, width: int = 64, height: int = 48) -> npt.NDArray[np.uint8]:
    """A ramp that moves."""
    ramp = np.arange(width * height * 3, dtype=np.int64).reshape(height, width, 3) // 40
    return ((ramp + 7 * number) % 256).astype(np.uint8)


def video(
    frames: int,
    format: str = "mp4",
    *,
    rate: int = 10,
    codec: str = "mpeg4",
    pts: Sequence[int] | None = None,
    size: tuple[int, int] = (64, 48),
    options: dict[str, str] | None = None,
    still: bool = False,
    is_black: bool = False,
) -> bytes:
    """Frame `i` is `picture(i)` at `i / rate` seconds, or at `pts[i]` milliseconds. `still`: all
    frames are `picture(0)`, and only the first is packed for itself. `is_black`: all are black.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder, "video")
        with av.open(str(file), "w", format=format, options=options or {}) as container:
            stream = container.add_stream(codec, rate=rate)
            assert isinstance(stream, VideoStream)
            stream.width, stream.height = size
            stream.pix_fmt = "yuv420p"
            stream.gop_size = frames if still else stream.gop_size
            stream.codec_context.time_base = Fraction(1, 1000)
            container.start_encoding()
            for number in range(frames):
                pixels = picture(0 if still else number, *size)
                pixels *= not is_black
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame.pts = pts[number] if pts else number * 1000 // rate
                frame.time_base = Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return file.read_bytes()


def frames_of(data: bytes) -> list[npt.NDArray[np.uint8]]:
    """Decoded beside the product."""
    with av.open(io.BytesIO(data), "r") as container:
        return [
            frame.to_ndarray(format="rgb24").astype(np.uint8) for frame in container.decode(video=0)
        ]
