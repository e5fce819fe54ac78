"""Rows of random numbers from a fixed seed: as CSV objects with their references, and as requests.

Rule: the numbers are the same in every run and on every machine, so that two reports differ only by
what was measured. Owner: the bench.
"""

from io import BytesIO

import numpy as np

from penstock import config, requests
from penstock.adapters.model_servers.ready_made import request_of
from penstock.core.rows.payload import Float32Matrix, JsonRows, Matrix, Payload
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference

COLUMNS = 16
SEED = 20
# Requests have this many rows, and the worker's window is set to the same size. Larger requests
# gain nothing at the model server.
BATCH_ROWS = 512
HUGE_PART_ROWS = 10_000


def numbers(settings: config.Model) -> dict[str, str]:
    """The worker's settings for these rows. With `--body` they are not used, and the caller's own
    settings stay.
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
    """The Kafka key and value of a reference."""
    value = encode_reference(
        Reference(bucket=bucket, key=key, stream=stream, event_time=event_time_ms)
    )
    return stream.encode(), value


def payloads(count: int, rows: int, request: str) -> list[Payload]:
    """`count` payloads with `rows` rows each, of the kind that `request` needs."""
    made = [matrix(rows, number) for number in range(count)]
    if requests.find(request).takes == "matrix":
        return [Matrix(one.astype("<f4")) for one in made]
    return [JsonRows.of([element(row) for row in one.tolist()]) for one in made]


def element(row: list[float]) -> bytes:
    """A row as JSON, with six decimals."""
    return b"[%b]" % b",".join(b"%.6f" % value for value in row)
