"""What the format tests share: decoding at given cuts, and runs as plain rows to compare."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from math import isnan

import numpy as np

from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix
from penstock.errors import Poison, Unforeseen
from penstock.formats.format import Format
from penstock.formats.reading import ObjectEnd, turns
from penstock.formats.registry import claim_of, open_parser
from penstock.formats.runs import RowOptions, Run
from penstock.formats.source import TAIL_BYTES, Need, RangedSource, Wanted


@contextmanager
def poison_at_most() -> Iterator[None]:
    """What is read may be poison for a reason; a decoder that falls over it fails the test."""
    try:
        yield
    except Unforeseen:
        raise
    except Poison:
        return


# One row: its member and its values, or its member and why it could not be read.
Row = tuple[str | None, object]


def decode(
    data: bytes,
    key: str = "x.csv",
    options: RowOptions | None = None,
    *,
    cuts: Iterable[int] = (),
    format: str | None = None,
    compression: str | None = None,
) -> list[Run]:
    """All runs of `data`, fed in the parts between `cuts`; raises what the decoder raises."""
    runs, failure = decode_until_failure(
        data, key, options, cuts=cuts, format=format, compression=compression
    )
    if failure is not None:
        raise failure
    return runs


def decode_until_failure(
    data: bytes,
    key: str,
    options: RowOptions | None = None,
    *,
    cuts: Iterable[int] = (),
    format: str | None = None,
    compression: str | None = None,
) -> tuple[list[Run], Poison | None]:
    """The runs that came before the failure, and the failure. Without a cut it is read as a small
    object is that came whole.
    """
    runs: list[Run] = []
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    options = options or RowOptions()
    try:
        parser = open_parser(options, claim_of(key, format, compression))
        for turn in turns(parser, pieces, options):
            runs += turn.runs
    except Unforeseen:
        raise
    except Poison as failure:
        return runs, failure
    return runs, None


def by_ranges(
    options: RowOptions,
    format: Format,
    data: bytes,
    wanted: Wanted = lambda start, stop: True,
    fetched: list[Need] | None = None,
) -> Iterator[list[Run]]:
    """The runs of an object that is read by ranges; these are added to `fetched`."""
    if not data:
        return

    def ask(need: Need) -> bytes:
        if fetched is not None:
            fetched.append(need)
        return data[need.start : need.stop]

    assert format.ranged is not None
    source = RangedSource(len(data), data[-TAIL_BYTES:], ask)
    for run in ObjectEnd(options).cut(format.ranged(source, options, wanted)):
        yield [run]


def rows_of(runs: Iterable[Run]) -> list[Row]:
    rows: list[Row] = []
    for run in runs:
        if run.payload is None:
            assert run.error is not None
            rows += [(run.member, run.error)] * run.rows
            continue
        assert run.error is None
        assert run.payload.rows == run.rows
        rows.extend((run.member, value) for value in _values(run))
    return rows


def _values(run: Run) -> list[object]:
    if isinstance(run.payload, Matrix):
        assert run.payload.values.dtype == np.float32
        assert run.payload.values.flags.c_contiguous
        return [[_comparable(value) for value in row] for row in run.payload.values.tolist()]
    if isinstance(run.payload, BytesRows):
        return [bytes(run.payload.cut(row, row + 1).row(0)) for row in range(run.rows)]
    if isinstance(run.payload, Columns):
        return [repr(run.payload.cut(row, row + 1).batch.to_pylist()[0]) for row in range(run.rows)]
    assert isinstance(run.payload, JsonRows)
    whole = json.loads(b"".join((b"[", run.payload.body, b"]")))
    alone = [run.payload.cut(row, row + 1) for row in range(run.rows)]
    assert whole == [json.loads(bytes(row.body)) for row in alone]
    return [bytes(row.body) for row in alone]


def _comparable(value: float) -> object:
    """NaN equals itself here; -0 and 0 are equal, as everywhere."""
    return "nan" if isnan(value) else value


def matrix(runs: Iterable[Run]) -> list[list[float]]:
    """The values of runs that are all good."""
    values: list[list[float]] = []
    for run in runs:
        assert isinstance(run.payload, Matrix), run
        values += run.payload.values.tolist()
    return values


def elements(runs: Iterable[Run]) -> list[object]:
    """The JSON rows of runs that are all good."""
    rows: list[object] = []
    for run in runs:
        assert isinstance(run.payload, JsonRows), run
        rows += json.loads(b"".join((b"[", run.payload.body, b"]")))
    return rows


def errors(runs: Iterable[Run]) -> list[str]:
    return [run.error for run in runs if run.error is not None for _ in range(run.rows)]


def tar_of(members: Mapping[str, bytes], *, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for path, body in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)
