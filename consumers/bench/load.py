"""What is measured with: CSV objects, their references, and the same rows as ready-made requests.

Rule: the same numbers on every run and machine (a fixed seed), so that two reports differ only by
what was measured.
"""

from collections.abc import Iterator
from io import BytesIO

import numpy as np

from consumers.core.payload import Float32Matrix
from schemas.codec import encode_reference
from schemas.reference import Reference

COLUMNS = 16
SEED = 20
# The model server's plateau (docs/performance.md); the worker under test is set to the same.
BATCH_ROWS = 512
# The worker's settings for rows of numbers; another body comes with the caller's own.
NUMBERS = {"MODEL__REQUEST": "float32", "WINDOW__MAX_ROWS": str(BATCH_ROWS)}
HUGE_PART_ROWS = 10_000


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


def float32_requests(count: int, rows: int = BATCH_ROWS) -> list[bytes]:
    return [matrix(rows, number).astype("<f4").tobytes() for number in range(count)]


def json_rows(count: int) -> Iterator[bytes]:
    """One request per row, as the seed's method sends them."""
    for row in matrix(count, 0).tolist():
        yield b"[[%b]]" % b",".join(b"%.6f" % value for value in row)
