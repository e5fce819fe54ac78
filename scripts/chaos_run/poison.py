"""Messages that must not hold up the good ones: one of each kind, in their own streams, and the
code that must answer each.

Rule: a poison's object lies under `poison/`, so that the watch can tell its records from the
others. `cutting` cuts the object whose transfer always breaks, whatever the store holds. Owner: the
run.
"""

import gzip
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.simulation.announcements import tar

FOLDER = "poison/"
CUT = FOLDER + "cut-for-good.csv"
# Objects above 8 MiB come in chunks, so some of its rows are answered before the cut.
CUT_ROWS = 240_000
# Stands for a record without an object, that is, of a message that is not a reference.
NO_OBJECT = "no reference"
_ROW = b",".join([b"0.5"] * 16) + b"\n"


class Poison(NamedTuple):
    """`key`: of its object, or `NO_OBJECT`. `codes`: that may answer it, beside its good rows."""

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
    # What is decompressed before the damage shows becomes rows, some good and some bad.
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
    """The objects of the poison that the store holds."""
    for key, kind in KINDS.items():
        if kind.body is not None:
            yield key, kind.body()
