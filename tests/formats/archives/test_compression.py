"""gzip: members, padding, damage, bombs."""

import bz2
import lzma
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
from backports import zstd

from penstock.errors import Poison
from penstock.formats.archives.unpacking import CODECS, SLICE_BYTES, Codec, Expansion, PackedParser
from penstock.formats.parser_chain import ArchiveLimit, Parser
from penstock.formats.runs import RowOptions, Run
from tests.formats.support import decode, decode_until_failure, gzipped, matrix, tar_of

ROWS = b"1,2\n" * 100


def test_members_one_after_the_other_are_one_file() -> None:
    assert len(matrix(decode(gzipped(ROWS) * 3 + b"\0" * 700, "x.csv.gz"))) == 300


def test_a_row_may_go_on_in_the_next_member() -> None:
    assert matrix(decode(gzipped(b"1,2\n3,") + gzipped(b"4\n"), "x.csv.gz")) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzipped(ROWS)[:-4], "ends early"),
        (gzipped(ROWS) + b"\x1f", "ends early"),
        (gzipped(ROWS) + b"garbage", "not gzip"),
        (gzipped(ROWS) + b"\0\0garbage", "not gzip"),
        (gzipped(ROWS)[:-6] + b"xx" + gzipped(ROWS)[-4:], "damaged"),
        (gzipped(ROWS)[:10] + b"\xff" * 20, "damaged"),
    ],
)
def test_damage_is_a_bad_format_that_says_which(data: bytes, message: str) -> None:
    with pytest.raises(Poison, match=message) as failure:
        decode(data, "x.csv.gz")
    assert failure.value.code == "bad_format"


def test_the_rows_before_the_damage_are_read() -> None:
    rows = b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000))
    damaged = gzipped(rows)[:-8] + b"\0" * 8
    runs, failure = decode_until_failure(damaged, "x.csv.gz")
    assert failure is not None
    assert len(matrix(runs)) == 5000


def test_a_bomb_stops_at_the_expansion_ratio() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    packed = b"".join(bomb.compress(b"1,2\n" * (1 << 18)) for _ in range(64)) + bomb.flush()
    runs, failure = decode_until_failure(packed, "x.csv.gz", RowOptions(expansion_ratio=100))
    assert failure is not None
    assert failure.code == "too_large"
    assert "limits.expansion_ratio" in str(failure)
    assert sum(run.rows for run in runs) <= 16 << 18
    assert decode_until_failure(packed, "x.csv.gz", RowOptions(expansion_ratio=1100))[1] is None


PACKERS = {
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
    "lz4": lz4.frame.compress,
}
every_codec = pytest.mark.parametrize("codec", PACKERS)
MANY = b"".join(b"%d,%d\n" % (number, number * 7919 % 10007) for number in range(20_000))


def test_every_codec_is_tried_here() -> None:
    assert {codec.name for codec in CODECS} == PACKERS.keys(), "give PACKERS a function that packs"


@every_codec
@pytest.mark.parametrize("key", ["x.csv", "x.csv.zst", "x"])
def test_every_codec_is_told_by_its_first_bytes(codec: str, key: str) -> None:
    assert len(matrix(decode(PACKERS[codec](MANY), key))) == 20_000
    assert matrix(decode(PACKERS[codec](ROWS), key, cuts=range(2000))) == [[1, 2]] * 100


@every_codec
def test_frames_one_after_the_other_are_one_file(codec: str) -> None:
    pack = PACKERS[codec]
    packed = pack(b"1,2\n3,") + pack(b"4\n") + b"\0" * 8
    assert matrix(decode(packed, "x.csv")) == [[1, 2], [3, 4]]


@every_codec
@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_packed_object_that_breaks_off_is_bad_format(codec: str, tenth: int) -> None:
    packed = PACKERS[codec](MANY)
    runs, failure = decode_until_failure(packed[: len(packed) * tenth // 10], "x.csv")
    assert failure is not None
    assert (failure.code, codec in str(failure)) == ("bad_format", True)
    rows = matrix(runs)
    assert rows == [[i, i * 7919 % 10007] for i in range(len(rows))]


@every_codec
def test_damage_is_found_at_the_same_row_however_the_data_is_cut(codec: str) -> None:
    packed = bytearray(PACKERS[codec](MANY))
    packed[len(packed) // 2] ^= 0x55
    outcomes = set()
    for cuts in ([], range(0, len(packed), 997), [5, 17_000]):
        runs, failure = decode_until_failure(bytes(packed), "x.csv", cuts=cuts)
        outcomes.add((sum(run.rows for run in runs), str(failure)))
    assert len(outcomes) == 1


@every_codec
def test_an_archive_may_be_packed_by_any_codec(codec: str) -> None:
    packed = PACKERS[codec](tar_of({"a.csv": b"1,2\n", "b.csv.xz": lzma.compress(b"3,4\n")}))
    assert matrix(decode(packed, "x.tar.zst")) == [[1, 2], [3, 4]]
    with pytest.raises(Poison) as failure:
        decode(packed[:-9], "x.tar.zst")
    assert failure.value.code == "bad_archive"


@every_codec
def test_a_bomb_of_any_codec_stops_at_the_expansion_ratio(codec: str) -> None:
    bomb = PACKERS[codec](b"1,2\n" * (1 << 18)) * 32  # to pack all of it takes seconds
    runs, failure = decode_until_failure(bomb, "x.csv", RowOptions(expansion_ratio=100))
    assert failure is not None
    assert failure.code == "too_large"
    assert sum(run.rows for run in runs) <= 5 << 20


class Generous:
    """Unpacks more than it is asked for, as a library may whose limit is soft."""

    def __init__(self) -> None:
        self._unpacker = zstd.ZstdDecompressor()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unpacker, name)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._unpacker.decompress(data, 2 * max_length - 1)


class Unread(Parser):
    """Of rows that nobody counts."""

    def feed(self, data: bytes) -> Iterator[Run]:
        return iter(())

    def close(self) -> Iterator[Run]:
        return iter(())


def test_a_codec_that_gives_more_than_it_is_asked_for_has_the_same_limits() -> None:
    codec = Codec("zstd", (".zst",), Generous)
    options = RowOptions(expansion_ratio=100)
    parser = PackedParser(codec, Unread(), Expansion(options), limit_bytes=None)
    packed = zstd.compress(b"1,2\n" * (1 << 23))
    with pytest.raises(ArchiveLimit, match=r"limits\.expansion_ratio"):
        list(parser.feed(packed + bytes(SLICE_BYTES - len(packed) % SLICE_BYTES)))


def test_packed_twice_is_refused() -> None:
    for packed in (gzipped(bz2.compress(ROWS)), zstd.compress(gzipped(ROWS))):
        with pytest.raises(Poison, match="pack it once"):
            decode(packed, "x.csv")


def test_a_frame_that_wants_too_much_memory_is_refused() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 30}
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(MANY) + packer.flush()
    with pytest.raises(Poison, match="zstd data is damaged"):
        decode(packed, "x.csv")


def test_a_word_that_begins_like_bzip2_is_text() -> None:
    assert matrix(decode(b"BZh9,b\n1,2\n", "x.csv")) == [[1, 2]]


@pytest.mark.parametrize("key", ["x.csv.gz", "x.jsonl.gz"])
def test_the_few_rows_before_the_damage_are_read_too(key: str) -> None:
    row = b"[1]\n" if "json" in key else b"1\n"
    runs, failure = decode_until_failure(gzipped(row)[:-2], key, cuts=range(40))
    assert failure is not None
    assert matrix(runs) == [[1]]


SKIPPED = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
AFTER_SKIPPED = {"zst": zstd.compress, "lz4": lz4.frame.compress}


@pytest.mark.parametrize("name", AFTER_SKIPPED)
@pytest.mark.parametrize("key", ["x.csv", "x.csv.zst", "x"])
@pytest.mark.parametrize("skipped_bytes", [0, 5, 16_363, 16_370, 40_000])
def test_frames_to_be_skipped_may_stand_anywhere(name: str, key: str, skipped_bytes: int) -> None:
    skipped = SKIPPED[:4] + skipped_bytes.to_bytes(4, "little") + bytes(skipped_bytes)
    packed = AFTER_SKIPPED[name](ROWS)
    data = skipped + SKIPPED + packed + SKIPPED + packed + SKIPPED + b"\0" * 9
    for cuts in (range(0), range(1, len(data), 99)):
        assert matrix(decode(data, key, cuts=cuts)) == [[1, 2]] * 200


def test_frames_to_be_skipped_alone_have_no_rows_and_what_follows_is_known() -> None:
    assert decode(SKIPPED * 2, "x.csv.zst") == []
    for behind in (b"abc", b"garbage", gzipped(ROWS)):
        with pytest.raises(Poison, match="zstd or lz4") as caught:
            decode(SKIPPED + behind, "x.csv.zst")
        assert caught.value.code == "bad_format"


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("x.csv.zst", SKIPPED),
        ("x.csv.zst", zstd.compress(b"")),
        ("x.csv.gz", gzipped(b"")),
        ("x.csv.lz4", lz4.frame.compress(b"")),
    ],
    ids=["to be skipped", "zstd", "gzip", "lz4"],
)
def test_frames_of_nothing_are_counted(name: str, empty: bytes) -> None:
    options = RowOptions(members=1_000)
    assert decode(empty * 1_000, name, options) == []
    with pytest.raises(Poison, match="frames of nothing") as refused:
        decode(empty * 1_001, name, options)
    assert refused.value.code == "too_large"


def test_content_allows_frames_of_nothing() -> None:
    """As `pzstd` writes one before each frame."""
    body = (SKIPPED + zstd.compress(b"1,2\n" * 500)) * 1_001
    assert len(matrix(decode(body, "x.csv.zst", RowOptions(members=1)))) == 500 * 1_001


@pytest.mark.skipif(shutil.which("pzstd") is None, reason="no pzstd")
def test_what_pzstd_writes_is_read() -> None:
    rows = b"".join(b"%d,%d\n" % (i, i * i) for i in range(300_000))
    data = subprocess.run(["pzstd", "-c", "-q"], input=rows, capture_output=True, check=True).stdout
    assert data[1:4] == SKIPPED[1:4]
    assert len(matrix(decode(data, "x.csv.zst"))) == 300_000


@pytest.mark.parametrize("key", ["x.csv.zst", "x.ndjson.lz4", "x.txt.gz"])
@pytest.mark.parametrize(
    "head", [b"\x25\xb5\x2f\xfd", b"\x02\x21\x4c\x18", b"\x1f\x9d\x90", b"\xfe"]
)
def test_what_no_codec_reads_is_never_taken_for_text(key: str, head: bytes) -> None:
    options = RowOptions(form="bytes", format="text") if key == "x.txt.gz" else RowOptions()
    format = "text" if key == "x.txt.gz" else None
    with pytest.raises(Poison) as caught:
        decode(head + bytes(range(256)), key, options, format=format)
    assert caught.value.code == "bad_format"


def test_text_under_the_name_of_a_codec_is_still_text() -> None:
    assert matrix(decode(b"1,2\n", "x.csv.zst")) == [[1, 2]]
    assert matrix(decode("gr\u00f6\u00dfe,b\n1,2\n".encode(), "x.csv.gz")) == [[1, 2]]
