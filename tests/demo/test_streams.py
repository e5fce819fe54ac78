"""What the demo's streams write."""

import asyncio
import csv
import gzip
import io
import json
import tarfile
import time
from pathlib import Path

import pytest

from penstock import config
from penstock.adapters.memory import MemorySink
from penstock.tools.demo.progress import DemoProgress, DemoStream
from penstock.tools.demo.services import DemoPlace
from penstock.tools.demo.streams import (
    COLUMNS,
    ROWS,
    ROWS_AHEAD,
    TAR_EVERY,
    DemoStreams,
    Form,
    form,
    forms,
    make,
    stream_name,
)
from penstock.tools.simulation.virtual_time import virtual_time


def table(kind: Form, body: bytes) -> list[list[float]]:
    """Rows of an object, read by other libraries than the package's readers."""
    if kind == "ndjson":
        return [json.loads(line) for line in body.splitlines()]
    if kind == "tar.gz":
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as archive:
            members = [archive.extractfile(member) for member in archive]
            return [row for member in members if member for row in table("csv", member.read())]
    text = (gzip.decompress(body) if kind == "csv.gz" else body).decode()
    return [[float(cell) for cell in line] for line in csv.reader(io.StringIO(text))]


@pytest.mark.parametrize(
    ("kind", "index", "number"),
    [("csv", 0, 0), ("tar.gz", 0, TAR_EVERY - 1), ("csv.gz", 1, 0), ("ndjson", 2, 0)],
)
def test_an_object_holds_the_rows_it_claims_in_the_form_of_its_name(
    kind: Form, index: int, number: int
) -> None:
    made = make(index, number)
    assert form(index, number) == kind
    assert made.key == f"{stream_name(index)}/{number:06}.{kind}"
    rows = table(kind, made.body)
    assert len(rows) == made.rows
    assert {len(row) for row in rows} == {COLUMNS}


def test_every_run_writes_the_same_objects() -> None:
    assert make(0, TAR_EVERY - 1) == make(0, TAR_EVERY - 1)
    assert make(1, 5) == make(1, 5)


def test_no_two_objects_are_alike() -> None:
    bodies = {make(index, number).body for index in (0, 4) for number in range(4)}
    assert len(bodies) == 8


def test_streams_have_names_of_their_own() -> None:
    assert len({stream_name(index) for index in range(100)}) == 100


def test_the_forms_of_a_stream_are_told_in_words() -> None:
    assert [forms(index) for index in range(4)] == ["csv, tar.gz", "csv.gz", "ndjson", "csv"]


@virtual_time
async def test_a_stream_without_answers_skips_objects_before_the_broker_drops_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams beat on, and announce no more than is sure to be read before it is dropped."""
    monkeypatch.setattr(time, "time", asyncio.get_running_loop().time)
    written: list[str] = []

    async def write(key: str, _body: bytes) -> None:
        written.append(key)

    place = DemoPlace("", config.Config(), {}, tmp_path, "b", write, lambda _: None, 1_024)
    progress = DemoProgress([DemoStream(stream_name(index), "") for index in range(2)])
    sink = MemorySink(partitions=2)
    producers = DemoStreams(place, sink, progress, 50.0, 2, make)
    await producers.run(60.0, asyncio.Event())
    for stream in progress.streams:
        assert ROWS_AHEAD <= stream.rows_ahead <= ROWS_AHEAD + ROWS[1]
        assert stream.left_out + stream.sent == 60 * 50
    assert len(written) == sum(stream.sent for stream in progress.streams)
    # What the broker keeps is few records, as it looks through them all.
    values = [
        value
        for part in sink.topics[config.Config().kafka.input_topic].values()
        for _, value in part
    ]
    assert {len(value) for value in values} == {1_024}
    assert sorted(json.loads(value)["key"] for value in values) == sorted(written)
