"""Which store an object is looked for in, and what no store is for."""

import pytest

from penstock.core.routing.store_choice import DEFAULT, ConfiguredStore, StoreChoice
from penstock.errors import Poison

PLACES = StoreChoice(
    [
        ConfiguredStore(DEFAULT, "s3"),
        ConfiguredStore("eu", "s3", "eu-*"),
        ConfiguredStore("eu-raw", "s3", "eu-raw"),
        ConfiguredStore("lake", "az", "raw", "acct"),
        ConfiguredStore("other-lake", "az", "raw", "other"),
        ConfiguredStore("any-lake", "az", "*"),
        ConfiguredStore("cold", "gs", "*", None, ("archive", "sensors/2025/", "*/cold/*.csv")),
    ]
)


@pytest.mark.parametrize(
    ("bucket", "key", "store"),
    [
        ("sensors", "a.csv", DEFAULT),
        ("eu-1", "a.csv", "eu"),
        ("eu-raw", "a.csv", "eu-raw"),
        ("archive", "a.csv", "cold"),
        ("sensors", "2025/a.csv", "cold"),
        ("sensors", "x/cold/a.csv", "cold"),
        ("raw", "a.csv", DEFAULT),
    ],
)
def test_if_the_reference_names_no_store_routes_and_buckets_decide(
    bucket: str, key: str, store: str
) -> None:
    assert PLACES.of(None, bucket, key) == store


@pytest.mark.parametrize(
    ("words", "bucket", "store"),
    [
        ("eu", "eu-1", "eu"),
        ("any-lake", "anything", "any-lake"),
        (DEFAULT, "eu-1", DEFAULT),
        ("gs", "b", "cold"),
        ("az", "raw", "lake"),
        ("az@other", "raw", "other-lake"),
        ("az@third", "raw", "any-lake"),
        ("az", "b", "any-lake"),
        ("s3", "eu-1", "eu"),
    ],
)
def test_the_reference_says_which_store_or_which_kind(words: str, bucket: str, store: str) -> None:
    assert PLACES.of(words, bucket, "archive/a.csv") == store


@pytest.mark.parametrize(
    ("places", "words", "bucket"),
    [
        (StoreChoice.one(), "gs", "b"),
        (StoreChoice.one(), "nobody", "b"),
        (StoreChoice([ConfiguredStore("lake", "az", "raw", "acct")]), "az@other", "raw"),
        (StoreChoice([ConfiguredStore("lake", "az", "raw", "acct")]), None, "b"),
    ],
)
def test_an_object_that_no_store_is_for_is_refused(
    places: StoreChoice, words: str | None, bucket: str
) -> None:
    with pytest.raises(Poison, match="no store is configured for") as caught:
        places.of(words, bucket, "k")
    assert caught.value.code == "not_allowed"


def test_without_a_store_of_s3_a_plain_name_goes_to_any_store() -> None:
    places = StoreChoice([ConfiguredStore("lake", "az", "*"), ConfiguredStore("cloud", "gs", "b")])
    assert places.of(None, "b", "k") == "cloud"
    assert places.of(None, "c", "k") == "lake"


@pytest.mark.parametrize(("store", "bucket"), [("eu", "payroll"), ("lake", "hr"), ("eu-raw", "eu")])
def test_naming_a_store_does_not_open_another_bucket(store: str, bucket: str) -> None:
    with pytest.raises(Poison, match=f"the store {store} is not for the bucket") as caught:
        PLACES.of(store, bucket, "k")
    assert caught.value.code == "not_allowed"


def test_naming_a_store_opens_the_buckets_of_its_routes() -> None:
    places = StoreChoice([ConfiguredStore("aws", "s3", "exports", None, ("shared/out/",))])
    assert places.of("aws", "shared", "out/a.csv") == "aws"
    with pytest.raises(Poison, match="not for the bucket shared"):
        places.of("aws", "shared", "in/a.csv")


def test_a_store_that_is_named_like_its_scheme_leaves_the_other_buckets_to_others() -> None:
    places = StoreChoice([ConfiguredStore("gs", "gs", "one"), ConfiguredStore("rest", "gs", "two")])
    assert (places.of("gs", "one", "k"), places.of("gs", "two", "k")) == ("gs", "rest")
    with pytest.raises(Poison, match="no store is configured for gs://three"):
        places.of("gs", "three", "k")
