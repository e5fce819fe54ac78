"""What cannot be answered on the real services: in its place, by an error and a dead letter."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import jsonschema
import orjson
import pytest

from tests.support.loads import csv, tar_gz
from tests.support.reference_model import random_rows
from tests.support.services import ROOT, Services, Topics
from tests.support.topic_tools import Broker, Message, Record
from tests.support.worker import environment, running_worker

ROWS = csv(random_rows(400)).splitlines(keepends=True)
SHORT_ROW = b"1,2,3\n"
TEXT = b"".join(ROWS)
ARCHIVE = tar_gz([("a.csv", TEXT), ("b.csv", TEXT)])


class Fault(NamedTuple):
    """An object (`data` None: there is none) and the codes of its answers, row by row; `marker` is
    the code of the answer without a row, if there is one.
    """

    data: bytes | None
    rows: tuple[str | None, ...] = ()
    marker: str | None = None
    private: bool = False


FAULTS = {
    "missing.csv": Fault(None, marker="not_found"),
    "private.csv": Fault(b"".join(ROWS[:3]), marker="forbidden", private=True),
    "missing in private.csv": Fault(None, marker="forbidden", private=True),
    "not gzip.csv.gz": Fault(b"\x1f\x8bgarbage", marker="bad_format"),
    "not tar.tar": Fault(b"no tar" * 200, marker="bad_archive"),
    "bad row.csv": Fault(
        b"".join([*ROWS[:2], SHORT_ROW, ROWS[2]]), rows=(None, None, "bad_row", None)
    ),
    "bad last row.csv": Fault(b"".join([*ROWS[:2], b"a,b\n"]), rows=(None, None, "bad_row")),
    "too few columns.csv": Fault(SHORT_ROW, rows=("model_rejected",)),
    "not a number.csv": Fault(
        b"".join([ROWS[0], b",".join([b"nan"] * 16) + b"\n", ROWS[1]]),
        rows=(None, "model_rejected", None),
    ),
    "no rows.csv": Fault(b"", marker=""),
}

NO_REFERENCES = {
    "not UTF-8": b"\xff\xfe",
    "not JSON": b"a.csv",
    "an array": b"[1]",
    "no bucket": b'{"key": "a.csv"}',
    "a number for a key": b'{"bucket": "b", "key": 7}',
    "a tombstone": None,
}


@pytest.fixture
def shared(s3: Any, bucket: str) -> Iterator[str]:
    """A bucket that everybody may read, as `bucket` may not be."""
    name = f"{bucket}-shared"
    s3.create_bucket(Bucket=name)
    rights = {"s3:GetObject": f"{name}/*", "s3:ListBucket": name}
    statements = [
        {"Effect": "Allow", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{what}"}
        for action, what in rights.items()
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
    yield name
    for entry in s3.list_objects_v2(Bucket=name).get("Contents", []):
        s3.delete_object(Bucket=name, Key=entry["Key"])
    s3.delete_bucket(Bucket=name)


def validator(name: str) -> Any:
    schema = json.loads((ROOT / "schemas" / f"{name}.v1.schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


def documents(records: dict[int, list[Record]], schema: str) -> list[dict[str, Any]]:
    """Of partition 0, each valid."""
    found = [record.document for record in records[0]]
    valid = validator(schema)
    for document in found:
        valid.validate(document)
    return found


def code_of(answer: dict[str, Any]) -> str | None:
    return answer["error"]["code"] if "error" in answer else None


async def run_until_committed(environ: dict[str, str], broker: Broker, offset: int) -> None:
    topic = environ["PENSTOCK_KAFKA__INPUT_TOPIC"]
    async with running_worker(environ) as worker:
        await broker.until_committed(topic, topic, {0: offset})
        assert await worker.stop() == 0, worker.said


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
async def test_each_fault_is_answered_in_its_place_and_what_follows_is_predicted(
    services: Services,
    topics: Topics,
    bucket: str,
    shared: str,
    s3: Any,
    broker: Broker,
    client: str,
) -> None:
    s3.put_object(Bucket=shared, Key="good.csv", Body=b"".join(ROWS[:2]))
    good = {"bucket": shared, "key": "good.csv"}
    values: list[Any] = []
    for key, fault in FAULTS.items():
        place = bucket if fault.private else shared
        if fault.data is not None:
            s3.put_object(Bucket=place, Key=key, Body=fault.data)
        values += [{"bucket": place, "key": key, "attributes": {"kept": 1}}, good]
    await broker.publish(topics.input, [Message(value) for value in values])
    environ = environment(
        services,
        topics,
        MODEL__REQUEST="float32",
        OBJECTS__KEY="",
        OBJECTS__SECRET="",
        OBJECTS__ANON="true",
        OBJECTS__CLIENT=client,
    )
    await run_until_committed(environ, broker, len(values))

    expected: list[tuple[str, int | None, bool, str | None]] = []
    for key, fault in FAULTS.items():
        final = len(fault.rows) - 1
        expected += [(key, row, row == final, code) for row, code in enumerate(fault.rows)]
        if fault.marker is not None:
            expected.append((key, None, True, fault.marker or None))
        expected += [("good.csv", 0, False, None), ("good.csv", 1, True, None)]
    answers = documents(await broker.records(topics.output), "prediction")
    assert [
        (answer["object"]["key"], answer["row"], answer.get("last", False), code_of(answer))
        for answer in answers
    ] == expected
    assert all(
        (answer["prediction"] is None) == (code_of(answer) is not None or answer["row"] is None)
        for answer in answers
    )

    letters = documents(await broker.records(topics.dlq), "dead_letter")
    assert [(letter["object"]["key"], letter["code"], letter["rows"]) for letter in letters] == [
        ("missing.csv", "not_found", None),
        ("private.csv", "forbidden", None),
        ("missing in private.csv", "forbidden", None),
        ("not gzip.csv.gz", "bad_format", None),
        ("not tar.tar", "bad_archive", None),
        ("bad row.csv", "bad_row", [[2, 3]]),
        ("bad last row.csv", "bad_row", [[2, 3]]),
        ("too few columns.csv", "model_rejected", [[0, 1]]),
        ("not a number.csv", "model_rejected", [[1, 2]]),
    ]
    valid = validator("reference")
    for letter in letters:
        valid.validate(letter["reference"])
        assert letter["reference"].get("rows") == letter["rows"]
        assert letter["reference"]["attributes"] == {"kept": 1}


BROKEN = {
    "truncated.csv.gz": (gzip.compress(TEXT)[:-2000], "bad_format"),
    "truncated.tar.gz": (ARCHIVE[:-2000], "bad_archive"),
    "truncated.tar": (gzip.decompress(ARCHIVE)[: len(TEXT) + 4000], "bad_archive"),
    # A second gzip member whose first block is of a kind that does not exist.
    "corrupt.csv.gz": (gzip.compress(TEXT) + gzip.compress(b"")[:10] + b"\xff" * 100, "bad_format"),
    "wrong checksum.csv.gz": (gzip.compress(TEXT)[:-8] + bytes(8), "bad_format"),
}


async def test_of_a_broken_object_the_rows_before_the_break_are_predicted(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="good.csv", Body=ROWS[0])
    values = []
    for key, (data, _) in BROKEN.items():
        s3.put_object(Bucket=bucket, Key=key, Body=data)
        values += [{"bucket": bucket, "key": key}, {"bucket": bucket, "key": "good.csv"}]
    await broker.publish(topics.input, [Message(value) for value in values])
    await run_until_committed(
        environment(services, topics, MODEL__REQUEST="float32"), broker, len(values)
    )
    found = documents(await broker.records(topics.output), "prediction")
    letters = documents(await broker.records(topics.dlq), "dead_letter")
    assert [letter["object"]["key"] for letter in letters] == list(BROKEN)
    by_offset = groupby(found, key=lambda answer: answer["source"]["offset"])
    of_each = [list(answers) for _, answers in by_offset]
    assert [answers[0]["object"]["key"] for answers in of_each] == [
        value["key"] for value in values
    ]
    assert [[code_of(answer) for answer in answers] for answers in of_each[1::2]] == [[None]] * len(
        BROKEN
    )
    for (*answers, marker), letter in zip(of_each[::2], letters, strict=True):
        _, code = BROKEN[marker["object"]["key"]]
        assert 0 < len(answers) <= 800
        assert [answer["row"] for answer in answers] == list(range(len(answers)))
        assert all(answer["prediction"] and not answer.get("last") for answer in answers)
        assert (marker["row"], marker["last"], marker["rows"]) == (None, True, len(answers))
        assert (code_of(marker), letter["code"], letter["stage"]) == (code, code, "expand")
        assert letter["reference"]["rows"] == [[len(answers), None]]


async def test_a_message_that_is_no_reference_gets_a_marker_and_its_bytes_a_dead_letter(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="good.csv", Body=ROWS[0])
    good = {"bucket": bucket, "key": "good.csv"}
    values: list[Any] = [value for bad in NO_REFERENCES.values() for value in (bad, good)]
    await broker.publish(topics.input, [Message(value, key=b"cam-1") for value in values])
    await run_until_committed(
        environment(services, topics, MODEL__REQUEST="float32"), broker, len(values)
    )
    answers = documents(await broker.records(topics.output), "prediction")
    assert [code_of(answer) for answer in answers] == ["bad_reference", None] * len(NO_REFERENCES)
    assert [answer["source"]["offset"] for answer in answers] == list(range(len(values)))
    assert {answer["stream"] for answer in answers} == {"cam-1"}
    assert all(
        (answer["object"], answer["row"], answer["rows"]) == (None, None, 0)
        for answer in answers[::2]
    )
    letters = documents(await broker.records(topics.dlq), "dead_letter")
    assert [letter["reference"] for letter in letters] == [None] * len(NO_REFERENCES)
    assert [letter["value_b64"] and b64decode(letter["value_b64"]) for letter in letters] == list(
        NO_REFERENCES.values()
    )


async def test_a_dead_letters_reference_published_again_after_the_mend_is_answered(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="bad row.csv", Body=ROWS[0] + SHORT_ROW + ROWS[1])
    values = [{"bucket": bucket, "key": key} for key in ("late.csv", "bad row.csv")]
    await broker.publish(topics.input, [Message(value) for value in values])
    environ = environment(services, topics, MODEL__REQUEST="float32")
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: 2})
        s3.put_object(Bucket=bucket, Key="late.csv", Body=ROWS[0])
        s3.put_object(Bucket=bucket, Key="bad row.csv", Body=b"".join(ROWS[:3]))
        letters = (await broker.records(topics.dlq))[0]
        again = [Message(orjson.dumps(letter.document["reference"])) for letter in letters]
        await broker.publish(topics.input, again)
        await broker.until_committed(topics.input, topics.input, {0: 4})
        assert await worker.stop() == 0, worker.said
    answers = documents(await broker.records(topics.output), "prediction")
    assert [
        (answer["object"]["key"], answer["row"], code_of(answer))
        for answer in answers
        if answer["source"]["offset"] >= 2
    ] == [("late.csv", 0, None), ("bad row.csv", 1, None)]
