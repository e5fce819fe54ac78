"""Each target takes any bytes and raises only if we are wrong.

Rule: only our own errors come out of a decoder, rows do not depend on where the bytes are cut, and
what a codec read it writes back so that it reads the same. The first bytes choose the settings, so
that a fuzzer can. Owner: a new format or codec brings its target.
"""

import gzip
import resource
from collections.abc import Callable
from functools import partial

import orjson

from penstock.adapters.http.answer_reader import Answer, AnswerReader, TooLong, Unusable, wanting
from penstock.adapters.model_servers import row_answers
from penstock.adapters.model_servers.torchserve import refusal
from penstock.core.progress import cursor
from penstock.core.rows.payload import Form
from penstock.errors import PenstockError, Poison, Transient, Unforeseen
from penstock.formats.format import WantsRanges
from penstock.formats.media.audio import AudioOptions
from penstock.formats.media.container_ends import FollowedFile, OggFile
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions
from penstock.formats.registry import formats
from penstock.formats.runs import RowOptions
from penstock.formats.source import AtHand
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.messages.codec import References, decode, encode_reference
from penstock.messages.dead_letter import decode_dead_letter
from penstock.messages.prediction import decode_prediction
from penstock.messages.reference import SchemaError
from tests.formats.support import by_ranges, decode_until_failure, rows_of
from tests.formats.support import decode as decode_object

Target = Callable[[bytes], None]

SETTING_BYTES = 6
_FORMS: tuple[Form, ...] = ("matrix", "json", "bytes", "columns")
_ROW_BYTES = (7, 40, 1000, 6_000_000)
_COLUMNS: tuple[tuple[str | int, ...] | None, ...] = (None, None, (1, 0), ("a",))


def _options(settings: bytes) -> RowOptions:
    return RowOptions(
        form=_FORMS[(settings[0] & 1) + (settings[1] >> 3 & 2)],
        row_bytes=_ROW_BYTES[settings[0] >> 1 & 3],
        columns=_COLUMNS[settings[0] >> 3 & 3],
        max_columns=4 if settings[1] & 1 else 250_000,
        rows=3 if settings[1] & 32 else 100_000_000,
        members=2 if settings[1] & 2 else 100_000,
        member="*" if settings[1] & 4 else None,
        own=(CsvOptions(header=("auto", "yes", "no", "auto")[settings[0] >> 5 & 3]),),
    )


def _decoder(key: str, data: bytes, format: str | None = None) -> None:
    """Rows and failure are the same for the whole at once, for two cuts, and byte by byte."""
    settings, body = data[:SETTING_BYTES].ljust(SETTING_BYTES, b"\0"), data[SETTING_BYTES:]
    if key.endswith(".gz") and settings[1] & 8:  # else the checksum is never met
        packed = bytearray(gzip.compress(body, 1, mtime=0))
        packed[settings[4] % len(packed)] ^= settings[5]
        body = bytes(packed)
    options = _options(settings)
    cuts = [settings[2] * len(body) // 256, settings[3] * len(body) // 256]
    whole = _outcome(key, body, options, [], format)
    assert _outcome(key, body, options, cuts, format) == whole
    if len(body) < 100:
        assert _outcome(key, body, options, list(range(len(body))), format) == whole


def _outcome(
    key: str, body: bytes, options: RowOptions, cuts: list[int], format: str | None
) -> object:
    try:
        runs, failure = decode_until_failure(body, key, options, cuts=cuts, format=format)
    except WantsRanges as wants:  # by its first bytes: such formats have targets of their own
        return wants.format.name
    return rows_of(runs), failure and (failure.code, str(failure))


def _ranged(name: str, data: bytes) -> None:
    """Rows are the same however few are wanted; those that are not have the footer's number."""
    settings, body = data[:SETTING_BYTES].ljust(SETTING_BYTES, b"\0"), data[SETTING_BYTES:]
    options = _options(settings)
    try:
        format = formats()[name]
        if not format.fits(options) or not body:
            return
        whole = [run for runs in by_ranges(options, format, body) for run in runs]
        first = sum(run.rows for run in whole) // 2
        part = by_ranges(options, format, body, lambda start, stop: stop > first)
        assert sum(run.rows for runs in part for run in runs) == sum(run.rows for run in whole)
    except Unforeseen:
        raise
    except Poison:
        return


def _pixels(data: bytes) -> None:
    """One row of the size that was asked for, or a bad one, whatever the picture."""
    settings, body = data[:1].ljust(1, b"\0"), data[1:]
    if not body:
        return
    image = PixelOptions(1 + settings[0] % 8, 1 + settings[0] // 8 % 4)
    options = RowOptions(own=(PictureOptions(image=image, pixels=1 << 16),))
    for run in decode_object(body, "x", options, format="image", compression="none"):
        assert run.rows == 1
        assert run.error or run.payload
        if run.payload is not None:
            assert run.payload.nbytes == image.row_bytes("matrix")


def _media(format: str, data: bytes) -> None:
    """Rows and then a reason, in a process of their own; rows are the same whether or not the
    first ones are wanted.
    """
    options = RowOptions(
        form=_FORMS[2 * (format == "video")],
        own=(
            AudioOptions(window_ms=10),
            PictureOptions(pixels=1 << 16),
        ),
    )
    assert _rows(format, options, data, 0) == _rows(format, options, data, 2)


def _rows(format: str, options: RowOptions, data: bytes, first: int) -> int:
    rows = 0
    try:
        for runs in by_ranges(options, formats()[format], data, partial(_wants_from, first)):
            rows += sum(run.rows for run in runs)
    except Unforeseen:
        raise
    except Poison:
        return rows
    except Transient:  # the object before wore the process out: a new one is asked
        return _rows(format, options, data, first)
    return rows


def _wants_from(first: int, _start: int, stop: int) -> bool:
    return stop > first


def _container(data: bytes) -> None:
    """Lengths that lie: an answer, whatever part of the file was seen before."""
    for kind in ("mov", "matroska", "mpegts"):
        file = FollowedFile(AtHand(data), kind)
        while file.read(len(data) // 2 + 1):
            pass
        reason = file.container.missing()
        unread = FollowedFile(AtHand(data), kind).container.missing()
        assert kind == "matroska" or (reason is None) == (unread is None)
    pages = OggFile(AtHand(data), 0)
    assert b"".join(iter(partial(pages.read, 300), b"")) == data[: pages.at]


def _message(data: bytes) -> None:
    try:
        message = decode(data)
    except SchemaError:
        return
    if isinstance(message, References):
        for reference in message.items:
            assert decode(encode_reference(reference)) == References((reference,))


def _cursor(data: bytes) -> None:
    """The first byte is the offset that the metadata is committed with."""
    next_offset, text = (data[0] if data else 0), data[1:].decode("latin-1")
    position = cursor.Position.of(cursor.Commit(next_offset, text))
    again = cursor.Position.of(position.commit)
    progress, of_again = position.progress, again.progress
    assert again.is_whole
    assert (of_again.stop, of_again.rows) == (progress.stop, progress.rows)
    assert list(of_again.completed) == list(progress.completed)
    assert {offset: list(ranges) for offset, ranges in of_again.objects.items()} == {
        offset: list(ranges) for offset, ranges in progress.objects.items()
    }


def _topic_record(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        read(data)
    except SchemaError:
        return


def _answer(data: bytes) -> None:
    """The first byte is how many rows were asked."""
    rows, raw = (data[0] % 4 if data else 0), data[1:]
    try:
        answers = row_answers.parse(raw, rows)
    except PenstockError:
        return
    assert len(answers.values) == rows
    for value in answers.values:
        orjson.loads(value)


def _refusal(data: bytes) -> None:
    status = 100 + int.from_bytes(data[:2], "big") % 500
    headers = {"Retry-After": data[2:6].decode("latin-1")}
    error = refusal(status, headers, data[6:], "http://model", len(data))
    assert isinstance(error, PenstockError)


def _http(data: bytes) -> None:
    """The first byte says where to cut. What comes behind an answer makes it none if it comes at
    once with it; if it comes later, the answer is already out.
    """
    at, raw = (data[0] * len(data) // 256 if data else 0), data[1:]
    whole, _ = _http_outcome([raw])
    for pieces in ([raw[:at], raw[at:]], [raw[place : place + 1] for place in range(len(raw))]):
        found, has_more = _http_outcome(pieces)
        assert found == whole or (whole == _REFUSED and has_more)


_REFUSED = ("refused", False)


def _http_outcome(pieces: list[bytes]) -> tuple[tuple[Answer | str, bool], bool]:
    """What is read, whether the connection is kept, and are there pieces that were not needed?"""
    reader = AnswerReader(wanting("Retry-After"), 100, 20)
    rest = iter(pieces)
    try:
        for piece in rest:
            answer = reader.feed(piece)
            if answer is not None:
                return (answer, reader.keeps), any(rest)
    except (Unusable, TooLong):
        return _REFUSED, False
    return (reader.end() or "nothing", reader.keeps), False


TARGETS: dict[str, Target] = {
    "csv": partial(_decoder, "x.csv"),
    "ndjson": partial(_decoder, "x.ndjson"),
    "json": partial(_decoder, "x.json"),
    "gzip": partial(_decoder, "x.csv.gz"),
    "packed": partial(_decoder, "x.csv.zst"),
    "tar": partial(_decoder, "x.tar"),
    "tar.gz": partial(_decoder, "x.tar.gz"),
    "unnamed": partial(_decoder, "x"),
    "parquet": partial(_ranged, "parquet"),
    "arrow": partial(_ranged, "arrow"),
    "avro": partial(_decoder, "x.avro"),
    "npy": partial(_ranged, "npy"),
    "npy as a member": partial(_decoder, "x.npy"),
    "zip": partial(_ranged, "zip"),
    "image": partial(_decoder, "x.jpg"),
    "pixels": _pixels,
    "audio": partial(_media, "audio"),
    "video": partial(_media, "video"),
    "container": _container,
    "text": partial(_decoder, "x.txt", format="text"),
    "message": _message,
    "cursor": _cursor,
    "dead_letter": partial(_topic_record, decode_dead_letter),
    "prediction": partial(_topic_record, decode_prediction),
    "answer": _answer,
    "refusal": _refusal,
    "http": _http,
}

# What libraries hold once they are loaded, and a frame of the largest picture that is read here.
MOST_GROWTH_BYTES = 256 << 20


def in_little_memory(target: Target, data: bytes) -> None:
    """Small inputs never grow the process by more, whatever a library of C makes of them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    target(data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before << 10
    assert grown <= MOST_GROWTH_BYTES, f"{len(data)} bytes took {grown}"


TARGETS = {name: partial(in_little_memory, target) for name, target in TARGETS.items()}

__all__ = ["SETTING_BYTES", "TARGETS", "Target"]
