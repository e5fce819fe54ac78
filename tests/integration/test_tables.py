"""Tables and arrays of every kind on the real services; what a worker that takes over fetches."""

import io
import zipfile
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.reference_model import Rows, numpy_answers, random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, running_worker

ROWS = 3000


def table_of(rows: Rows) -> Any:
    columns = {f"f{index}": column for index, column in enumerate(rows.T)}
    return pa.table(columns | {"id": np.arange(len(rows))})


def parquet(rows: Rows) -> bytes:
    out = io.BytesIO()
    pq.write_table(table_of(rows), out, row_group_size=400)
    return out.getvalue()


def arrow(rows: Rows) -> bytes:
    out = io.BytesIO()
    table = table_of(rows)
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, 400)
    return out.getvalue()


def avro(rows: Rows) -> bytes:
    fields = [{"name": f"f{index}", "type": "float"} for index in range(rows.shape[1])]
    fields.append({"name": "id", "type": "long"})
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": fields}
    fastavro.writer(out, schema, table_of(rows).to_pylist(), codec="deflate")
    return out.getvalue()


def csv(rows: Rows) -> bytes:
    head = ",".join([*(f"f{index}" for index in range(rows.shape[1])), "id"])
    lines = [",".join([*(f"{v:.9g}" for v in row), str(n)]) for n, row in enumerate(rows)]
    return "\n".join([head, *lines]).encode()


def zipped(rows: Rows) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", csv(rows))
    return out.getvalue()


WRITERS = {"a.parquet": parquet, "a.arrow": arrow, "a.avro": avro, "a.zip": zipped}


@pytest.mark.parametrize("key", WRITERS)
@pytest.mark.parametrize("form", ["float32", "arrow"])
async def test_every_row_of_a_table_is_answered_with_its_own_id(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, key: str, form: str
) -> None:
    rows = random_rows(ROWS)
    s3.put_object(Bucket=bucket, Key=key, Body=WRITERS[key](rows))
    environ = environment(services, topics, MODEL__REQUEST=form, ROWS__KEEP="id")
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": key})])
        await broker.until_answered(topics.output, ROWS)
        assert await worker.stop() == 0
    found = await broker.records(topics.output)
    records = [record.document for some in found.values() for record in some]
    assert [record["row"] for record in records] == list(range(ROWS))
    assert [record["columns"] for record in records] == [{"id": n} for n in range(ROWS)]
    scores = [record["prediction"]["score"] for record in records]
    assert scores == pytest.approx([one["score"] for one in numpy_answers(rows)], abs=1e-4)
