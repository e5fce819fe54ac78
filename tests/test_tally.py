"""What `penstock predict` says while records come, and at its end."""

import orjson

from penstock.commands.predict import SHOWN_EMPTY, RecordTally


def record(key: str, row: int | None, message: str | None = None) -> bytes:
    error = None if message is None else {"code": "bad_format", "message": message}
    found = {"bucket": "b", "key": key, "version": None}
    return orjson.dumps({"row": row, "last": True, "object": found, "error": error})


def test_objects_without_rows_are_named_and_then_counted() -> None:
    tally = RecordTally(lambda: 0.0)
    names = [f"{number}.avro" for number in range(SHOWN_EMPTY + 2)]
    said = [line for name in names for line in tally.take([record(name, None)])]
    assert said == [f"no rows in {name}" for name in names[:SHOWN_EMPTY]]
    assert f"{SHOWN_EMPTY + 2} objects without rows" in tally.sentence()
    assert tally.exit_code(allow_errors=False) == 0


def test_only_the_first_error_is_said_and_its_object_once() -> None:
    tally = RecordTally(lambda: 0.0)
    assert tally.take([record("x.csv", 3, "no number"), record("y.csv", 0, "no number")]) == [
        "the first error: x.csv, row 3: bad_format: no number"
    ]
    named = RecordTally(lambda: 0.0).take([record("x.csv", None, "b/x.csv: this is no text")])
    assert named == ["the first error: bad_format: b/x.csv: this is no text"]
