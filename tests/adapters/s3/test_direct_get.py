"""Small objects come by the direct way; whatever is not plain goes to the client behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock import config
from penstock.adapters.http.connections import SPREAD
from penstock.adapters.memory import MemoryObjects
from penstock.adapters.s3.direct_get import DirectObjects
from penstock.adapters.stores.transfer import WHOLE_BYTES
from penstock.errors import Poison
from penstock.ports import Location
from tests.adapters.stores.contract import read
from tests.adapters.stores.s3_stub import Cut, Refusal, S3Stub

KEY = Location("bucket", "a key/+%ü.csv")


@asynccontextmanager
async def direct(stub: S3Stub) -> AsyncIterator[tuple[DirectObjects, MemoryObjects]]:
    """The adapter on the stub, and the client behind it, which holds the same key."""
    behind = MemoryObjects()
    behind.put(KEY.bucket, KEY.key, b"from behind")
    settings = config.Objects(endpoint_url=stub.url, key="key", secret="secret")
    objects = DirectObjects(behind, settings)
    yield objects, behind
    await objects.aclose()


async def test_a_small_object_is_one_signed_get() -> None:
    async with S3Stub({KEY.key: b"1,2\n"}) as stub, direct(stub) as (objects, behind):
        body = await objects.open(KEY)
        assert [chunk async for chunk in body] == [b"1,2\n"]
        assert (body.size, body.etag, body.version_id) == (4, '"etag-1"', None)
    (seen,) = stub.seen
    assert seen.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=key/")
    assert behind.opened == []


async def test_an_empty_object_has_no_chunks() -> None:
    async with S3Stub({KEY.key: b""}) as stub, direct(stub) as (objects, _):
        assert await read(objects, KEY) == b""


async def test_connections_serve_one_object_after_the_other() -> None:
    async with S3Stub({KEY.key: b"x"}) as stub, direct(stub) as (objects, behind):
        for _ in range(2 * SPREAD):
            assert await read(objects, KEY) == b"x"
        assert [len(site._host._idle) for site in objects._sites.values()] == [SPREAD]
    assert behind.opened == []


@pytest.mark.parametrize(
    ("location", "header"),
    [(KEY._replace(etag="etag-1"), '"etag-1"'), (KEY._replace(etag='"etag-1"'), '"etag-1"')],
)
async def test_a_pinned_entity_tag_is_asked_for(location: Location, header: str) -> None:
    async with S3Stub({KEY.key: b"x"}) as stub, direct(stub) as (objects, _):
        assert await read(objects, location) == b"x"
    assert stub.seen[0].headers["If-Match"] == header


async def test_another_version_than_the_pinned_one_is_changed() -> None:
    """Some stores ignore `If-Match`."""
    async with S3Stub({KEY.key: b"x"}) as stub, direct(stub) as (objects, _):
        stub.ignores_pins = True
        with pytest.raises(Poison) as caught:
            await objects.open(KEY._replace(etag='"etag-0"'))
    assert caught.value.code == "changed"


@pytest.mark.parametrize("sent", ["etag-1", 'W/"etag-1"'])
async def test_an_entity_tag_without_quotes_or_marked_as_weak_is_the_same_one(sent: str) -> None:
    """A proxy that compresses marks it so."""
    async with S3Stub({KEY.key: b"x"}) as stub, direct(stub) as (objects, behind):
        stub.etag, stub.ignores_pins = sent, True
        assert await read(objects, KEY._replace(etag='"etag-1"')) == b"x"
    assert behind.opened == []


async def test_a_pinned_version_is_asked_for() -> None:
    async with S3Stub({KEY.key: b"x"}) as stub, direct(stub) as (objects, _):
        assert await read(objects, KEY._replace(version_id="v7", etag="other")) == b"x"
    assert stub.seen[0].version_id == "v7"
    assert "If-Match" not in stub.seen[0].headers


@pytest.mark.parametrize(
    "trouble", [Refusal(503, "SlowDown"), Refusal(404, "NoSuchVersion"), Cut()]
)
async def test_any_other_answer_is_left_to_the_client_behind(trouble: Refusal | Cut) -> None:
    async with S3Stub({KEY.key: b"x" * 1000}) as stub, direct(stub) as (objects, behind):
        stub.next.append(trouble)
        assert await read(objects, KEY) == b"from behind"
        assert behind.opened == [KEY]
        assert await read(objects, KEY) == b"x" * 1000


@pytest.mark.parametrize(
    "refusal",
    [Refusal(404, "NoSuchKey"), Refusal(404, "NoSuchBucket"), Refusal(400, "InvalidBucketName")],
)
async def test_what_is_not_there_is_asked_for_once_and_over_the_same_connections(
    refusal: Refusal,
) -> None:
    async with S3Stub({}) as stub, direct(stub) as (objects, behind):
        stub.next.extend([refusal] * 2 * SPREAD)
        for _ in range(2 * SPREAD):
            with pytest.raises(Poison) as caught:
                await objects.open(KEY)
            assert caught.value.code == "not_found"
        assert [len(site._host._idle) for site in objects._sites.values()] == [SPREAD]
    assert behind.opened == []
    assert len(stub.seen) == 2 * SPREAD


async def test_a_large_object_is_left_to_the_client_behind() -> None:
    large = b"x" * (WHOLE_BYTES + 1)
    async with S3Stub({KEY.key: large}) as stub, direct(stub) as (objects, behind):
        assert await read(objects, KEY) == b"from behind"
        assert behind.opened == [KEY]


async def test_a_store_that_is_away_is_left_to_the_client_behind() -> None:
    async with S3Stub({}) as stub:
        pass
    async with direct(stub) as (objects, _):
        assert await read(objects, KEY) == b"from behind"


async def test_odd_keys_never_go_the_direct_way() -> None:
    odd = Location("bucket", "a/../b")
    async with S3Stub({"b": b"wrong"}) as stub, direct(stub) as (objects, behind):
        behind.put(*odd[:2], b"right")
        assert await read(objects, odd) == b"right"
    assert stub.seen == []


async def test_a_bucket_that_cannot_exist_is_refused_before_anything_is_sent() -> None:
    async with S3Stub({}) as stub, direct(stub) as (objects, _):
        with pytest.raises(Poison):
            await objects.open(Location("a/b", "key"))
    assert stub.seen == []
