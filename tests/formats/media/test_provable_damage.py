"""Damage of recordings and films that their containers prove."""

import io
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import av
import pytest

from penstock.formats.media.audio import AudioOptions
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.runs import RowOptions
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
    """The clusters of a Matroska, to the end of the last one, behind which are the cues."""
    name = b"\x1f\x43\xb6\x75"
    starts = [at for at in range(len(data)) if data.startswith(name, at)]
    return list(pairwise([*starts, data.index(b"\x1c\x53\xbb\x6b", starts[-1])]))


def fragments(data: bytes) -> list[Span]:
    """The fragments of an MP4: each is two boxes (ISO 14496-12, 8.8)."""
    at, starts = 0, []
    while at < len(data):
        starts += [at] * (data[at + 4 : at + 8] in (b"moof", b"mfra"))
        at += int.from_bytes(data[at : at + 4], "big")
    return list(pairwise(starts))


def parts(data: bytes) -> list[Span]:
    """The packets of the first stream, by libav."""
    with av.open(io.BytesIO(data), "r") as opened:
        packets = [packet for packet in opened.demux(opened.streams[0]) if packet.size]
    return sorted((packet.pos or 0, (packet.pos or 0) + packet.size) for packet in packets)


def packets(data: bytes) -> Iterator[Span]:
    """The packets of the video of an MPEG-TS, whose stream libav numbers 256 (ISO 13818-1)."""
    for at in range(0, len(data), _TS_BYTES):
        if data[at + 1] & 0x1F == 1 and data[at + 2] == 0:
            yield at, at + _TS_BYTES


def recorded(format: str, subtype: str, units: Callable[[bytes], Sequence[Span]]) -> Sample:
    rate = 48_000 if subtype == "OPUS" else RATE
    data = recording(NOISE, format, subtype, rate)
    found_units = units(data)
    return Sample(
        f"{format}, {subtype}", f"x.{format.lower()}", data, WINDOWS, found_units, found_units
    )


def filmed(key: str, format: str, data: bytes, **proof: Any) -> Sample:
    return Sample(format, key, data, FRAMES, **proof)


def matroska() -> Sample:
    data = video(40, "matroska", options={"cluster_time_limit": "500"})
    found = clusters(data)
    return filmed("x.mkv", "Matroska of ffmpeg", data, proven=found, units=found)


def webm() -> Sample:
    """No flipped bit is proven, because there are no checksums."""
    options = {"cluster_time_limit": "1000", "g": "8"}
    data = video(40, "webm", codec="libvpx", options=options)
    found = clusters(data)
    return filmed("x.webm", "WebM", data, proven=found, units=found, flips=False)


def transport_stream() -> Sample:
    """What is behind the last packet but one cannot be missed."""
    data = video(40, "mpegts", codec="libx264")
    found = list(packets(data))[1:-1]
    return filmed("x.ts", "MPEG-TS", data, proven=found, units=found, flips=False)


def fragmented(codec: str) -> Sample:
    """A file may begin with any fragment, and nothing says which is the last."""
    movflags = "frag_keyframe+empty_moov+default_base_moof"
    data = video(60, codec=codec, options={"movflags": movflags, "g": "6"})
    found = fragments(data)
    return filmed(
        "x.mp4", f"MP4 in fragments, {codec}", data, proven=found, units=found[1:-1], flips=False
    )


def plain(codec: str) -> Sample:
    data = video(40, codec=codec, options={"movflags": "faststart"})
    found = parts(data)
    return filmed(
        "x.mp4", f"MP4, {codec}", data, proven=found, units=found, flips=False, by_end=True
    )


def counted(format: str, subtype: str) -> Sample:
    """The container says how many samples or bytes there are."""
    rate, key = (44_100, "x.mp3") if format == "MP3" else (RATE, f"x.{format.lower()}")
    data = recording(NOISE, format, subtype, rate)
    found = parts(data)
    units = found[:: max(1, len(found) // 50)]
    return Sample(
        f"{format}, {subtype}", key, data, WINDOWS, found, units, by_end=True, flips=False
    )


SAMPLES: dict[str, Callable[[], Sample]] = {
    "Vorbis": lambda: recorded("OGG", "VORBIS", pages),
    "Opus": lambda: recorded("OGG", "OPUS", pages),
    "FLAC": lambda: recorded("FLAC", "PCM_16", frames),
    "FLAC of 24 bits": lambda: recorded("FLAC", "PCM_24", frames),
    "Matroska": matroska,
    "WebM": webm,
    "MPEG-TS": transport_stream,
    "H.264 in fragments": lambda: fragmented("libx264"),
    "MPEG-4 in fragments": lambda: fragmented("mpeg4"),
    "H.264": lambda: plain("libx264"),
    "MPEG-4": lambda: plain("mpeg4"),
    "MP3": lambda: counted("MP3", "MPEG_LAYER_III"),
    "WAV": lambda: counted("WAV", "PCM_16"),
    "AIFF": lambda: counted("AIFF", "PCM_16"),
    "CAF": lambda: counted("CAF", "PCM_16"),
    "AU": lambda: counted("AU", "PCM_16"),
    "W64": lambda: counted("W64", "PCM_16"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_damage_that_can_be_proven_never_gives_other_rows(name: str) -> None:
    hold(SAMPLES[name]())


def test_a_lost_packet_of_a_transport_stream_never_gives_other_rows() -> None:
    sample = transport_stream()
    right, _, failure = read(sample, sample.data)
    assert failure is None
    assert len(right) == 40
    for start, stop in sample.units:
        lost = sample.data[:start] + sample.data[stop:]
        assert not is_silent(right, *read(sample, lost)), start


def test_a_fragment_of_sound_that_is_missing_does_not_end_the_film() -> None:
    """Each fragment has a number; the film goes on without a gap."""
    sample = fragmented("libx264")
    right, _, failure = read(sample, sample.data)
    assert failure is None
    for at, _ in fragments(sample.data)[2:]:
        number = sample.data.index(b"mfhd", at) + 8
        later = (int.from_bytes(sample.data[number : number + 4], "big") + 7).to_bytes(4, "big")
        data = sample.data[:number] + later + sample.data[number + 4 :]
        assert read(sample, data) == (right, set(), None)
