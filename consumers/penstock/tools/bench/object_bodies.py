"""What the bench's objects contain: rows of random numbers, or the file of `--body FILE`.

Rule: the numbers come from a fixed seed, so that two reports differ only by what was measured. A
file is read once, with the worker's own readers: one that the worker would refuse ends the bench
before, and the direct client posts the same requests.
"""

from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from pathlib import Path

import numpy as np
from msgspec import Struct

from penstock import config
from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.protocols import request_of
from penstock.core.rows.payload import Float32Matrix, JsonRows, Matrix, Payload
from penstock.errors import Fatal, Poison, usage
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.formats.runs import Run
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference
from penstock.settings.inputs import row_options

COLUMNS = 16
SEED = 20
# Requests have this many rows, and the worker's window is set to the same size. Larger requests
# gain nothing at the model server.
BATCH_ROWS = 512
HUGE_PART_ROWS = 10_000


def numbers(settings: config.Model) -> dict[str, str]:
    """The worker's settings for rows of numbers. If there is a `--body`, these settings are not
    used, and the caller's own settings stay.
    """
    return {"MODEL__REQUEST": request_of(settings), "WINDOW__MAX_ROWS": str(BATCH_ROWS)}


def matrix(rows: int, number: int) -> Float32Matrix:
    """The rows of object `number`."""
    return np.random.default_rng([SEED, number]).standard_normal((rows, COLUMNS), np.float32)


def csv_body(rows: int, number: int) -> bytes:
    """The rows as CSV with six decimals: about 152 bytes a row."""
    text = BytesIO()
    np.savetxt(text, matrix(rows, number), fmt="%.6f", delimiter=",")
    return text.getvalue()


def huge_body(rows: int) -> bytes:
    """A CSV of `rows` rows, in which the same 10,000 rows repeat."""
    whole, rest = divmod(rows, HUGE_PART_ROWS)
    return csv_body(HUGE_PART_ROWS, 0) * whole + csv_body(rest, 1)


def reference(
    bucket: str, key: str, stream: str, event_time_ms: int | None = None
) -> tuple[bytes, bytes]:
    """The Kafka key and the Kafka value of a reference."""
    value = encode_reference(
        Reference(bucket=bucket, key=key, stream=stream, event_time=event_time_ms)
    )
    return stream.encode(), value


def payloads(count: int, rows: int, request: str) -> list[Payload]:
    """`count` payloads with `rows` rows each, of the kind that `request` needs."""
    made = [matrix(rows, number) for number in range(count)]
    if request_forms.find(request).takes == "matrix":
        return [Matrix(array.astype("<f4")) for array in made]
    return [JsonRows.of([element(row) for row in array.tolist()]) for array in made]


def element(row: list[float]) -> bytes:
    """A row as JSON, with six decimals."""
    return b"[%b]" % b",".join(b"%.6f" % value for value in row)


# Each stream has ten copies of this file as its objects. The file may have at most this many bytes:
# the copies of a larger one would fill memory and disk, and the bench would measure that.
MOST_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20


class BenchRequest(Struct):
    """One call, ready to be posted."""

    data: bytes
    headers: dict[str, str]
    rows: int


class BenchObject(Struct):
    """The file. `small`: a request with the rows of one object. `full`: a request that repeats
    these rows until it reaches the window's limits.
    """

    data: bytes
    extension: str
    rows: int
    small: BenchRequest
    full: BenchRequest


def read_body(cfg: config.Config, path: Path) -> BenchObject:
    """Read the file. Raises `Fatal` if the worker would refuse the file or one of its rows."""
    if cfg.model.protocol != "torchserve":
        raise _refused(path, f"it goes to TorchServe only, not by {cfg.model.protocol}")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _refused(path, f"more than {MOST_BYTES >> 20} MiB")
        data = path.read_bytes()
        runs = _runs(cfg, path, data)
    except OSError as error:
        raise _refused(path, str(error.strerror or error)) from None
    except Poison as error:
        raise _refused(path, f"{error} (model.request = {cfg.model.request!r})") from None
    payloads = [run.payload for run in runs if run.payload is not None]
    if not payloads:
        raise _refused(path, "it has no rows")
    rows = sum(payload.rows for payload in payloads)
    return BenchObject(
        data,
        "".join(path.suffixes),
        rows,
        _request(cfg, payloads, rows),
        _request(cfg, payloads, cfg.window.max_rows),
    )


def _runs(cfg: config.Config, path: Path, data: bytes) -> list[Run]:
    steps = decoded(row_options(cfg), data, CHUNK_BYTES, claim_of(path.name))
    runs = [run for step in steps for run in step]
    for run in runs:
        if run.error is not None:
            raise _refused(path, f"a bad row: {run.error}")
    return runs


def _refused(path: Path, why: str) -> Fatal:
    return usage(f"--body {path}: {why}")


def _request(cfg: config.Config, payloads: Sequence[Payload], most_rows: int) -> BenchRequest:
    """A request that repeats these rows until it has `most_rows` rows or reaches a limit of the
    window.
    """
    form = request_forms.find(cfg.model.request)
    most_rows = 1 if form.single else min(most_rows, cfg.window.max_rows)
    chosen: list[Payload] = []
    rows = nbytes = 0
    for payload in cycle(payloads):
        part = payload.cut(0, min(payload.rows, most_rows - rows))
        is_full = rows == most_rows or nbytes + part.nbytes > cfg.window.max_bytes
        if chosen and (is_full or part.shape != chosen[0].shape):
            break
        chosen.append(part)
        rows += part.rows
        nbytes += part.nbytes
    data, headers = form.encode(chosen)
    return BenchRequest(data, dict(headers), rows)
