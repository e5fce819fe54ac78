"""Damage of recordings and films that their containers prove."""

import io
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import av
import pytest

from penstock.formats.base.runs import RowOptions
from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from tests.formats.recordings import RATE, recording, tone, video
from tests.formats.test_provable_damage import Sample, Span, hold, is_silent, read

WINDOWS = RowOptions(own=(AudioOptions(window_ms=100),))
FRAMES = RowOptions(own=(PictureOptions(image=PixelOptions(16, 16)),))
NOISE = tone(3 * RATE)
_TS_BYTES = 188


def pages(data: bytes) -> list[Span]:
    """The pages of an Ogg (RFC 3533, 6)."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        sizes = data[at + 27 : at + 27 + data[at + 26]]
        at += 27 + len(sizes) + sum(sizes)
    return list(pairwise([*starts, at]))


def frames(data: bytes) -> list[Span]:
    """The frames of a FLAC, by libav's parser."""
    with av.open(io.BytesIO(data), "r") as opened:
        sizes = [packet.size for packet in opened.demux(audio=0)]
    at, found = len(data) - sum(sizes), []
    for size in filter(None, sizes):
        found.append((at, at + size))
        at += size
    return found


def clusters(data: bytes) -> list[Span]:
    """The clusters of a Matroska, to the end of the last one, behind which are the cues. That a
    whole cluster is lost is only seen at the end.
    """
    name = b"\x1f\x43\xb6\x75"
    starts = [at for at in range(len(data)) if data.startswith(name, at)]
    return list(pairwise([*starts, data.index(b"\x1c\x53\xbb\x6b", starts[-1])]))


def packets(data: bytes) -> Iterator[Span]:
    """The packets of the video of an MPEG-TS, whose stream libav numbers 256 (ISO 13818-1)."""
    for at in range(0, len(data), _TS_BYTES):
        if data[at + 1] & 0x1F == 1 and data[at + 2] == 0:
            yield at, at + _TS_BYTES


def recorded(format: str, subtype: str, units: Callable[[bytes], Sequence[Span]]) -> Sample:
    rate = 48_000 if subtype == "OPUS" else RATE
    data = recording(NOISE, format, subtype, rate)
    found = units(data)
    return Sample(f"{format}, {subtype}", f"x.{format.lower()}", data, WINDOWS, found, found)


def filmed(key: str, format: str, proven: Sequence[Span], data: bytes) -> Sample:
    return Sample(format, key, data, FRAMES, proven)


MATROSKA = video(40, "matroska", options={"cluster_time_limit": "500"})
SAMPLES = [
    recorded("OGG", "VORBIS", pages),
    recorded("OGG", "OPUS", pages),
    recorded("FLAC", "PCM_16", frames),
    recorded("FLAC", "PCM_24", frames),
    filmed("x.mkv", "Matroska of ffmpeg", clusters(MATROSKA), MATROSKA),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_damage_that_can_be_proven_never_gives_other_rows(sample: Sample) -> None:
    hold(sample)


def test_a_lost_packet_of_a_transport_stream_never_gives_other_rows() -> None:
    data = video(20, "mpegts", codec="libx264")
    sample = filmed("x.ts", "MPEG-TS", [], data)
    right, _, failure = read(sample, data)
    assert failure is None
    assert len(right) == 20
    # What is behind the last packet but one cannot be missed.
    for start, stop in list(packets(data))[1:-1]:
        assert not is_silent(right, *read(sample, data[:start] + data[stop:])), start
