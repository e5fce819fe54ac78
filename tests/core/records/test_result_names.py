"""Where the answers of an object are written."""

import re
from itertools import product

import pytest

from penstock.core.records.result_names import MAX_KEY_BYTES, NameScope, ResultName, ResultNames
from penstock.core.rows.blocks import Ticket
from penstock.messages.reference import EventTime, Reference, RowRange
from penstock.ports import Record
from tests.core.builders import StubLane
from tests.support.partitions import P0, P1

ONE_BUCKET = NameScope(is_one_bucket=True)


def ticket(
    key: str = "a/b.csv",
    *,
    index: int = 0,
    event_time: EventTime | None = None,
    rows: tuple[RowRange, ...] | None = None,
) -> Ticket:
    reference = Reference(bucket="in", key=key, event_time=event_time, rows=rows)
    return Ticket(StubLane(), Record(P0, 42, None, b"", 1_795_208_217_412), index, "s/1", reference)


def key_of(key: str, template: str = "s3://out/{key}.jsonl") -> str:
    return ResultNames(template, "rows", ONE_BUCKET).of(ticket(key)).key


def test_a_template_names_the_object_of_a_reference() -> None:
    names = ResultNames(
        "s3://out-{bucket}/{date}/{stream}/{key}.{partition}.{offset}.jsonl.gz", "rows", NameScope()
    )
    name = names.of(ticket())
    assert names.format == "jsonl.gz"
    assert (name.bucket, name.key) == ("out-in", "2026-11-20/s%2F1/a/b.csv.0.42.jsonl.gz")
    assert name.url == "s3://out-in/2026-11-20/s%2F1/a/b.csv.0.42.jsonl.gz"


def test_a_folder_of_this_machine() -> None:
    name = ResultNames("file:///out/{key}.csv", "rows", ONE_BUCKET).of(ticket())
    assert (name.bucket, name.key, name.url) == ("", "/out/a/b.csv", "file:///out/a/b.csv")


@pytest.mark.parametrize(
    ("event_time", "date"),
    [
        (0, "1970-01-01"),
        (1_795_208_217_412, "2026-11-20"),
        ("2024-02-29T23:59:59-05:00", "2024-03-01"),
        ("2024-02-29", "2024-02-29"),
        ("9999-12-31T23:59:59-05:00", "9999-12-31"),
        (None, "2026-11-20"),
    ],
)
def test_the_date_is_the_reference_s_own_never_today(
    event_time: EventTime | None, date: str
) -> None:
    assert ResultNames("s3://out/{date}/{key}.csv", "rows", ONE_BUCKET).of(
        ticket(event_time=event_time)
    ).key == (f"{date}/a/b.csv")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("../../etc/passwd.txt", "%2E%2E/%2E%2E/etc/passwd.txt.jsonl"),
        ("a//b.csv", "a/%/b.csv.jsonl"),
        ("/a.csv", "%/a.csv.jsonl"),
        ("a/./b.csv", "a/%2E/b.csv.jsonl"),
        ("100%.csv", "100%25.csv.jsonl"),
        ("%2E%2E.csv", "%252E%252E.csv.jsonl"),
        ("a\nb\\c.csv", "a%0Ab%5Cc.csv.jsonl"),
        ("ü +&?#*.csv", "ü +&?#*.csv.jsonl"),
        ("{key}.csv", "{key}.csv.jsonl"),
    ],
)
def test_no_key_leaves_its_folder_and_two_keys_never_become_one_name(key: str, name: str) -> None:
    assert key_of(key) == name


def test_a_long_name_is_cut_and_stays_unique() -> None:
    for longest in ("k" * 1_000, "/".join(["ü" * 100] * 5), "a/" * 500):
        names = {key_of(longest), key_of(longest + "x")}
        assert len(names) == 2
        assert all(len(name.encode()) <= MAX_KEY_BYTES + 20 for name in names)
        assert all(len(part.encode()) <= 220 for name in names for part in name.split("/"))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("part.parquet", "part.parquet"),
        ("d=1/part-0-9e.c000.snappy.parquet", "d=1/part-0-9e.c000.snappy.parquet"),
        ("part", "part%.parquet"),
        ("part.csv", "part.csv.parquet"),
        ("part.csv.gz", "part.csv.gz.parquet"),
        ("part.csv.parquet", "part.csv.parquet.parquet"),
        ("part.parquet.parquet", "part.parquet.parquet.parquet"),
        (".parquet.parquet", ".parquet.parquet.parquet"),
        ("a/.parquet", "a/.parquet.parquet"),
    ],
)
def test_a_name_ends_once_and_stays_its_own(key: str, name: str) -> None:
    assert key_of(key, "s3://out/{key}.parquet") == name


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("s3://in/{key}.parquet", "a.parquet"),
        ("s3://{bucket}/{key}.parquet", "a.parquet"),
        ("file:///store/{bucket}/{key}.parquet", "/store/in/a.parquet"),
    ],
)
def test_a_result_does_not_replace_its_own_object(template: str, key: str) -> None:
    assert key_of("a.parquet", template) == f"{key}.parquet"


def test_a_file_is_not_replaced_by_its_result() -> None:
    file = ticket()
    file.reference = Reference(bucket="file://", key="/data/a.parquet")
    for template, path in (
        ("file:///{key}.parquet", "/data/a.parquet.parquet"),
        ("file:///out/{key}.parquet", "/out/data/a.parquet"),
    ):
        assert ResultNames(template, "rows", ONE_BUCKET).of(file).key == path


def test_a_result_of_some_rows_does_not_replace_the_result_of_all() -> None:
    names = ResultNames("s3://out/{key}.jsonl", "rows", ONE_BUCKET)
    redriven = ticket(rows=((17, 18),))
    assert names.of(redriven).key == "a/b.csv.rows-refs-0-42-0.jsonl"


def test_a_key_that_looks_like_the_result_of_some_rows_is_escaped() -> None:
    names = ResultNames("s3://out/{key}.jsonl", "rows", ONE_BUCKET)
    whole, part = ticket("x.rows-refs-0-42-0"), ticket("x", rows=((1, 2),))
    assert names.of(whole).key == "x%2Erows-refs-0-42-0%.jsonl"
    assert names.of(part).key == "x.rows-refs-0-42-0.jsonl"
    assert names.of(ticket("x%2Erows-refs-0-42-0")) != names.of(whole)


def test_inline_rows_and_a_bucket_named_inline_have_two_results() -> None:
    names = ResultNames("s3://out/{bucket}/{key}.jsonl", "rows", NameScope())
    inline, stored = ticket(), ticket("refs/0/42")
    inline.reference = None
    stored.reference = Reference(bucket="inline", key="refs/0/42")
    assert names.of(inline).key == "inline/refs/0/42.jsonl"
    assert names.of(stored).key == "inline/%72efs/0/42%.jsonl"


def test_objects_of_one_name_in_two_stores_have_two_results() -> None:
    names = ResultNames("s3://out/{bucket}/{key}.jsonl", "rows", NameScope())
    here, there = ticket(), ticket()
    there.store = "archive"
    assert names.of(here).key == "in/a/b.csv.jsonl"
    assert names.of(there).key == "in/a/b.csv%in-archive.jsonl"
    named = ResultNames("s3://out/{store}/{key}.jsonl", "rows", ONE_BUCKET)
    assert named.of(there).key == "archive/a/b.csv.jsonl"


def test_two_objects_of_one_message_have_two_results() -> None:
    names = ResultNames("s3://out/{partition}/{offset}.jsonl", "rows", NameScope())
    assert [names.of(ticket(index=index)).key for index in (0, 1)] == [
        "0/42.jsonl",
        "0/42%object-1.jsonl",
    ]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("s3://out/{key}.txt", "must end with .jsonl, "),
        ("s3://out/all.jsonl", "names one object for many"),
        ("s3://out/{date}/{offset}.jsonl", "names one object for many"),
        ("s3://out/{kee}.jsonl", "has {kee}; there are {bucket}, {date}, {key}"),
        ("out/{key}.jsonl", "is no URL"),
        ("file://host/{key}.jsonl", "names a host"),
        ("s3://out/{key}.jsonl", "two buckets one name; put in {bucket}"),
        ("s3://out/{date:%Y}/{bucket}/{key}.jsonl", "write {date}"),
        ("s3://out/{bucket}/{key!r}.jsonl", "write {key}"),
        ("s3://out/{bucket}//{key}.jsonl", "has a folder that is empty"),
        ("s3://out/../{bucket}/{key}.jsonl", "has a folder that is empty, . or .."),
        ("s3://out/{bucket}-{key}.jsonl", "{bucket} and {key} stand in one folder"),
        ("s3://out/{partition}{offset}.jsonl", "put a - beside {partition} and {offset}"),
        ("s3://out/{topic}{partition}-{offset}.jsonl", "put a - beside {partition}"),
        ("s3://out/{partition}0{offset}.jsonl", "put a - beside {partition}"),
        ("s3://{stream}/{bucket}/{key}.jsonl", "has {stream} in the bucket's name"),
    ],
)
def test_a_template_that_can_name_no_results_is_refused(template: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ResultNames(template, "rows", NameScope())


TEMPLATES = [
    "s3://out/{bucket}/{key}.jsonl",
    "s3://out-{bucket}/{date}-{key}.jsonl",
    "s3://out/{stream}/{bucket}/{key}.jsonl",
    "s3://out/{bucket}/{stream}/{key}-x.jsonl",
    "s3://out/{key}/{stream}/{bucket}.jsonl",
    "s3://out/{partition}/{offset}/{key}.jsonl",
    "s3://out/{key}.{partition}.{offset}.jsonl",
    "s3://out/{stream}/{partition}/{key}-{offset}.jsonl",
    "s3://out/{stream}/{offset}-{partition}.jsonl",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_two_objects_never_have_one_name(template: str) -> None:
    """Whatever they are called, and whatever is asked of them."""
    names = ResultNames(template, "rows", NameScope())
    texts: tuple[str, ...] = (
        "a",
        "a/b",
        "a.1",
        "a-1",
        "a-1/2",
        "a.1.2",
        "1",
        "..",
        "%2F",
        "a%object-1",
        "a%in-s",
    )
    texts += ("a.jsonl", "a%", "a.csv", "a.csv.jsonl", "a.jsonl.jsonl", ".jsonl", "a.1.jsonl")
    seen: dict[ResultName, tuple[object, ...]] = {}
    for bucket, key, stream, offset, index in product(("a", "a.1"), texts, texts, (1, 11), (0, 1)):
        asked = Ticket(
            StubLane(P1),
            Record(P1, offset, None, b"", 1_795_208_217_412),
            index,
            stream,
            Reference(bucket=bucket, key=key),
        )
        # With the key in its name, an object is the same in whatever message it is announced.
        is_of_records = "{offset}" in template
        who = (offset, index) if is_of_records else (bucket, key)
        assert seen.setdefault(names.of(asked), who) == who


def test_records_of_two_topics_have_two_names() -> None:
    two = NameScope(is_one_input=False)
    with pytest.raises(ValueError, match=re.escape("put in {topic}")):
        ResultNames("s3://out/{partition}/{offset}.jsonl", "rows", two)
    names = ResultNames("s3://out/{bucket}/{key}-{partition}-{offset}.jsonl", "rows", two)
    assert names.of(ticket()) != names.of(ticket(rows=((1, 2),)))


def test_in_one_bucket_alone_an_object_does_not_take_the_name_of_inline_rows() -> None:
    names = ResultNames("s3://out/{key}.jsonl", "rows", ONE_BUCKET)
    inline = ticket()
    inline.reference = None
    assert names.of(inline) != names.of(ticket("refs/0/42"))


def test_no_folder_has_the_name_of_a_result() -> None:
    """A file system, and MinIO, cannot have both."""
    names = ResultNames("file:///all.csv/{bucket}/{key}.csv", "rows", NameScope())
    assert names.of(ticket("a")).key == "/all.csv/in/a%.csv"
    assert names.of(ticket("a.csv/b.csv")).key == "/all.csv/in/a%2Ecsv/b.csv.csv"
    assert names.of(ticket("a%2Ecsv/b.csv")).key == "/all.csv/in/a%252Ecsv/b.csv"


def test_a_name_that_was_cut_equals_no_other_name() -> None:
    cut = key_of("k" * 1_000).removesuffix(".jsonl")
    assert key_of(cut) != f"{cut}.jsonl"


APART = [
    "s3://out/{model}/{bucket}/{key}.jsonl",
    "s3://out/{bucket}/{key}/{model}.jsonl",
    "s3://out/{date}/{bucket}/{model}/{stream}/{key}.jsonl",
    "s3://out/{stream}/{model}/{bucket}/{key}.jsonl",
    "s3://out/{partition}/{offset}/{model}.jsonl",
    "s3://out-{model}/{bucket}/{key}.jsonl",
]
TOGETHER = [
    "s3://out/{bucket}/{key}.jsonl",
    "s3://out/{partition}/{offset}.jsonl",
]


def named(template: str, model: str | None, key: str, stream: str) -> ResultName:
    asked = ticket(key)
    asked.model, asked.stream = model, stream
    return ResultNames(template, "rows", NameScope()).of(asked)


@pytest.mark.parametrize("template", APART)
def test_two_models_never_write_one_name(template: str) -> None:
    ResultNames(template, "rows", NameScope(are_several_models=True))
    parts = ("a", "b", "a/b", "b/a", "a-b", "b-a", "..", "%2F")
    names = [
        {named(template, model, key, stream) for key in parts for stream in parts}
        for model in (None, *parts)
    ]
    assert sum(map(len, names)) == len(set().union(*names))


@pytest.mark.parametrize("template", TOGETHER)
def test_a_template_that_gives_two_models_one_name_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape("put in {model} as a folder of its own")):
        ResultNames(template, "rows", NameScope(are_several_models=True))
    assert ResultNames(template, "rows", NameScope()).format == "jsonl"
