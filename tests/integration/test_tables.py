"""Tables and arrays of every kind on the real services; what a worker that takes over fetches."""

import io
import zipfile
from collections import Counter
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.progress.cursor import Position
from penstock.core.rows.origin import START
from penstock.ports import Commit
from tests.support.model_proxy import ModelProxy
from tests.support.reference_model import Rows, numpy_answers, random_rows
from tests.support.relay import relay_to
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, running_worker

ROWS = 3000
# 20 row groups of about 0.5 MB.
LARGE_ROWS, GROUP_ROWS = 160_000, 8_000


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
    assert scores == pytest.approx([answer["score"] for answer in numpy_answers(rows)], abs=1e-4)


async def test_after_a_kill_only_the_row_groups_that_are_left_are_fetched(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, proxy: ModelProxy
) -> None:
    rows = random_rows(LARGE_ROWS)
    out = io.BytesIO()
    pq.write_table(table_of(rows), out, row_group_size=GROUP_ROWS)
    s3.put_object(Bucket=bucket, Key="a.parquet", Body=out.getvalue())
    settings = {"MODEL__REQUEST": "float32", "MODEL__URL": proxy.url, "ROWS__KEEP": "id"}
    proxy.hold_after(LARGE_ROWS * 3 // 4)
    await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.parquet"})])
    async with running_worker(environment(services, topics, **settings)) as worker:
        await broker.until_answered(topics.output, LARGE_ROWS // 2)

        async def committed() -> bool:
            position = (await broker.positions(topics.input, topics.input)).get(0, Commit(0))
            progress = Position.of(position).progress
            return progress.rows.get((0, 0), START).row >= GROUP_ROWS

        await until(committed, lambda: "a cursor in the middle of the object")
        await worker.kill()
    proxy.release()
    before = sum((await broker.ends(topics.output)).values())
    async with relay_to(services.endpoint_url.removeprefix("http://")) as relay:
        await relay.listen("open")
        settings["OBJECTS__ENDPOINT_URL"] = f"http://{relay.address}"
        async with running_worker(environment(services, topics, **settings)) as worker:
            await broker.until_committed(topics.input, topics.input, {0: 1})
            assert await worker.stop() == 0
    answered = [record.document["row"] for record in (await broker.records(topics.output))[0]]
    assert sorted(set(answered)) == list(range(LARGE_ROWS))
    assert max(Counter(answered).values()) <= 2
    # What the killed worker had sent may have arrived after `before`; it was not committed, so the
    # next one begins with a row that is there.
    again = next((row for former, row in pairwise(answered) if row <= former), None)
    first_left = answered[before] if again is None else again
    assert first_left >= GROUP_ROWS, "nothing of the object was committed before the kill"
    footer = pq.read_metadata(out)
    groups = [
        sum(
            footer.row_group(number).column(column).total_compressed_size
            for column in range(footer.num_columns)
        )
        for number in range(footer.num_row_groups)
    ]
    left_bytes = sum(groups[first_left // GROUP_ROWS :])
    # The footer and what HTTP says beside the bodies are less than one row group.
    assert left_bytes < relay.given_bytes < left_bytes + min(groups)
