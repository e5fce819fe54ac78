"""`objects.allow` is judged by the name as it is, before anything is asked of the store."""

import pytest

from penstock.tools.simulation.virtual_time import virtual_time
from tests.corpus.running import answered, run, said
from tests.support.pipelines import World

ALLOW = ["b/public/", "b/one.csv", "logs"]


@pytest.mark.parametrize(
    ("bucket", "key", "word"),
    [
        ("b", "public/a.csv", "end:not_found"),
        ("b", "public/deep/a.csv", "end:not_found"),
        ("b", "public/../private/a.csv", "end:not_allowed"),  # a proxy may shorten it
        ("b", "one.csv", "end:not_found"),
        ("logs", "anything", "end:not_found"),
        ("b", "private/a.csv", "end:not_allowed"),
        ("b", "publica.csv", "end:not_allowed"),
        ("b", "/public/a.csv", "end:not_allowed"),
        ("b", "PUBLIC/a.csv", "end:not_allowed"),
        ("b", "one.csv\n", "end:not_allowed"),
        ("b", "one.csv/more", "end:not_allowed"),
        ("b", "*", "end:not_allowed"),
        ("B", "one.csv", "end:not_allowed"),
        ("logs2", "a", "end:not_allowed"),
        ("other", "b/one.csv", "end:not_allowed"),
        ("other/logs", "a", "end:not_allowed"),
    ],
)
@virtual_time
async def test_only_allowed_names_reach_the_store(bucket: str, key: str, word: str) -> None:
    there = World(partitions=2, allow=ALLOW)
    there.announce(key, bucket=bucket)
    await run(there)
    assert said(answered(there)[0]) == [word]
    assert bool(there.objects.opened) == (word == "end:not_found")
