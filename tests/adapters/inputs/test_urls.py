"""Which objects and files a URL or a glob names."""

from pathlib import Path

import pytest

from penstock.adapters.inputs.urls import references
from penstock.adapters.memory import MemoryObjects
from penstock.core.routing.store_choice import StoreChoice
from penstock.errors import Fatal

NOTES = [
    "t/_SUCCESS",
    "t/_metadata",
    "t/_common_metadata",
    "t/.part-0.parquet.crc",
    "t/_delta_log/0.json",
    "t/_temporary/0/part-0.parquet",
    "t/_committed_17",
]
FILES = ["t/part-0.parquet", "t/_mine.csv", "t/year=2026/part-1.parquet"]


async def keys(url: str, stored: list[str]) -> list[str]:
    objects = MemoryObjects()
    for key in stored:
        objects.put("b", key, b"1,2\n")
    return [reference.key async for reference in references(objects, [url], StoreChoice.one())]


async def test_a_glob_passes_over_the_notes_of_spark_and_hive_unless_it_names_them() -> None:
    assert await keys("s3://b/t/**", NOTES + FILES) == sorted(FILES)
    assert await keys("s3://b/t/_delta_log/*", NOTES + FILES) == ["t/_delta_log/0.json"]
    assert await keys("s3://b/t/_SUCCESS", NOTES) == ["t/_SUCCESS"]
    with pytest.raises(Fatal, match="no object matches"):
        await keys("s3://b/t/**", NOTES)


async def test_an_object_of_exactly_the_name_is_not_taken_for_a_glob() -> None:
    assert await keys("s3://b/a[1].csv", ["a[1].csv", "a1.csv"]) == ["a[1].csv"]
    assert await keys("s3://b/a[1].csv", ["a1.csv"]) == ["a1.csv"]
    with pytest.raises(Fatal, match=r"\[\[\] for a bracket itself"):
        await keys("s3://b/a[1]/*.csv", ["a[1]/x.csv"])
    assert await keys("s3://b/a[[]1]/*.csv", ["a[1]/x.csv"]) == ["a[1]/x.csv"]


async def test_files_here_are_named_in_the_same_way(tmp_path: Path) -> None:
    for name in ("a[1].csv", "_SUCCESS", "b/_metadata", "b/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1\n")
    for url, expected in {
        f"{tmp_path}/a[1].csv": ["a[1].csv"],
        f"file://{tmp_path}/a[1].csv": ["a[1].csv"],
        f"{tmp_path}/**": ["a[1].csv", "b/c.csv"],
        f"{tmp_path}/_SUCC*": ["_SUCCESS"],
    }.items():
        found = [
            reference.key
            async for reference in references(MemoryObjects(), [url], StoreChoice.one())
        ]
        assert [str(Path(key).relative_to(tmp_path)) for key in found] == expected
