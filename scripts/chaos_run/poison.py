"""Bad messages, one of each kind and each in its own stream, and the codes that may answer them.

Rule: bad messages must not hold up the good ones. The objects of bad messages lie under `poison/`,
so that the watch can tell their records from those of the run's rows. The transfer of `CUT` is
broken by `cut_transfer`. Owner: the run.
"""

import gzip
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.simulation.announcements import tar

FOLDER = "poison/"
CUT = FOLDER + "cut-for-good.csv"
# This many rows are more than 8 MiB, so they come in chunks, and some rows are answered before the
# cut.
CUT_ROWS = 240_000
# The key of a message that is not a reference, whose answer names no object.
NO_OBJECT = "no reference"
_ROW = b",".join([b"0.5"] * 16) + b"\n"


class Poison(NamedTuple):
    """`key`: the key of its object, or `NO_OBJECT`. `codes`: the error codes by which it may be
    answered. Some of its rows may be answered by predictions.
    """

    key: str
    partition: int
    at_s: float
    codes: tuple[str, ...]


class Kind(NamedTuple):
    codes: tuple[str, ...]
    body: Callable[[], bytes] | None


def _damaged_gzip() -> bytes:
    return gzip.compress(_ROW * 2_000)[:-40] + b"\0" * 40


KINDS: Mapping[str, Kind] = {
    FOLDER + "missing.csv": Kind(("not_found",), None),
    # The bytes that are decompressed before the damage become rows, some good and some bad.
    FOLDER + "damaged.csv.gz": Kind(("bad_format", "bad_archive", "bad_row"), _damaged_gzip),
    FOLDER + "cut.tar": Kind(
        ("bad_archive", "bad_format"), lambda: tar([("a.csv", _ROW * 50)])[:2_000]
    ),
    FOLDER + "bomb.csv.gz": Kind(
        ("bad_archive", "too_large", "bad_format"), lambda: gzip.compress(b"\n" * (64 << 20))
    ),
    FOLDER + "words.csv": Kind(("bad_row",), lambda: _ROW * 5 + b"one,two\n" + _ROW * 5),
    FOLDER + "wide.csv": Kind(("model_rejected",), lambda: (_ROW[:-1] + b",1\n") * 5),
    CUT: Kind(("unavailable",), lambda: _ROW * CUT_ROWS),
    NO_OBJECT: Kind(("bad_reference",), None),
}


def make(dice: random.Random, partitions: int, until_s: float) -> tuple[Poison, ...]:
    """One of each kind, at a random time, in a random partition."""
    return tuple(
        Poison(key, dice.randrange(partitions), dice.uniform(0, until_s), kind.codes)
        for key, kind in KINDS.items()
    )


def message(poison: Poison, bucket: str) -> bytes:
    if poison.key == NO_OBJECT:
        return b'{"bucket": "here", '
    return msgspec.json.encode({"bucket": bucket, "key": poison.key, "stream": poison.key})


def objects() -> Iterator[tuple[str, bytes]]:
    """Key and body of each bad object that is to be stored."""
    for key, kind in KINDS.items():
        if kind.body is not None:
            yield key, kind.body()
