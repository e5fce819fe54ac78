"""Parquet files of sensors, and their answers as a table: `python sensors.py [URL]`.

Without files of your own, it makes one for each of two sensors in the folder `readings`.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import predict_sync

READINGS = Path("readings")


def make_readings() -> None:
    READINGS.mkdir()
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for sensor, first in (("north", 76.0), ("south", 79.0)):
        table = pa.table(
            {
                "sensor": [sensor] * 5,
                "time": [begin + timedelta(minutes=minute) for minute in range(5)],
                "temperature": [first + minute * 2 for minute in range(5)],
                "pressure": [2.4, 2.6, None, 2.7, 2.8],
            }
        )
        pq.write_table(table, READINGS / f"{sensor}.parquet")


if not READINGS.exists():
    make_readings()
answers = predict_sync(
    f"{READINGS}/*.parquet",
    model=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9001/score",
    protocol="http",
    keep=["sensor", "time"],  # these stay beside each answer
    config={"rows": {"columns": ["temperature", "pressure"]}},
)
table = answers.to_arrow()
pq.write_table(table, "answers.parquet")
print(answers)
for answer in answers:
    print(answer.object.key, answer.row, answer.prediction or answer.error.message)
