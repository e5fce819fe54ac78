"""What the demo's streams write."""

import csv
import gzip
import io
import json
import tarfile

import pytest

from consumers.demo.streams import COLUMNS, TAR_EVERY, Form, form, forms, make, stream_name


def table(kind: Form, body: bytes) -> list[list[float]]:
    """Read by nothing of ours."""
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
