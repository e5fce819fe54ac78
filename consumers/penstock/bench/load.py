"""What is measured with: CSV objects, their references, and the same rows as ready-made requests.

Rule: the same numbers on every run and machine (a fixed seed), so that two reports differ only by
what was measured.
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
# The model server's plateau (docs/performance.md); the worker under test is set to the same.
BATCH_ROWS = 512
HUGE_PART_ROWS = 10_000


def numbers(settings: config.Model) -> dict[str, str]:
    """The worker's settings for rows of numbers; another body comes with the caller's own."""
    return {"MODEL__REQUEST": request_of(settings), "WINDOW__MAX_ROWS": str(BATCH_ROWS)}


def matrix(rows: int, number: int) -> Float32Matrix:
    """Object `number`'s rows."""
    return np.random.default_rng([SEED, number]).standard_normal((rows, COLUMNS), np.float32)


def csv_body(rows: int, number: int) -> bytes:
    """About 152 bytes a row: six decimals."""
    text = BytesIO()
    np.savetxt(text, matrix(rows, number), fmt="%.6f", delimiter=",")
    return text.getvalue()


def huge_body(rows: int) -> bytes:
    """The same 10,000 rows over and over."""
    whole, rest = divmod(rows, HUGE_PART_ROWS)
    return csv_body(HUGE_PART_ROWS, 0) * whole + csv_body(rest, 1)


def reference(
    bucket: str, key: str, stream: str, event_time_ms: int | None = None
) -> tuple[bytes, bytes]:
    """Kafka key and value."""
    value = encode_reference(
        Reference(bucket=bucket, key=key, stream=stream, event_time=event_time_ms)
    )
    return stream.encode(), value


def payloads(count: int, rows: int, request: str) -> list[Payload]:
    """Rows as they are read for `model.request`."""
    made = [matrix(rows, number) for number in range(count)]
    if requests.find(request).takes == "matrix":
        return [Matrix(one.astype("<f4")) for one in made]
    return [JsonRows.of([element(row) for row in one.tolist()]) for one in made]


def element(row: list[float]) -> bytes:
    """A row as JSON, with six decimals."""
    return b"[%b]" % b",".join(b"%.6f" % value for value in row)
