"""The contract of object stores over MinIO, by both clients, and what only a real store does."""

import io
import tarfile
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from penstock import config
from penstock.adapters.s3.obstore_client import ObstoreObjects
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.choice import open_objects
from penstock.ports import Location, Objects
from tests.adapters.stores.contract import (
    ObjectsContract,
    code_of,
    each_version_is_as_it_was,
    keys_of,
    read,
)
from tests.support.services import Services

CLIENTS: dict[str, Callable[[config.Objects], Objects]] = {
    "default": lambda settings: open_objects(config.Config(objects=settings)),
    "obstore": ObstoreObjects,
    "s3fs": S3fsObjects,
}


class S3Shelf(NamedTuple):
    s3: Any
    bucket: str
    objects: Objects

    def put(self, key: str, data: bytes) -> str:
        etag: str = self.s3.put_object(Bucket=self.bucket, Key=key, Body=data)["ETag"]
        return etag.strip('"')


def settings(services: Services) -> config.Objects:
    return config.Objects(
        endpoint_url=services.endpoint_url,
        key=services.key,
        secret=services.secret,
        region=services.region,
    )


@pytest.fixture(params=CLIENTS.values(), ids=list(CLIENTS))
async def shelf(
    request: pytest.FixtureRequest, services: Services, s3: Any, bucket: str
) -> AsyncIterator[S3Shelf]:
    objects = request.param(settings(services))
    yield S3Shelf(s3, bucket, objects)
    await objects.aclose()


class TestMinio(ObjectsContract):
    """Plus versions, permissions, and the keys that MinIO takes and paths do not."""

    def fill(self, shelf: S3Shelf, keys: list[str]) -> None:
        """By one request: MinIO takes the files of this tar for objects."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for key in keys:
                tar.addfile(tarfile.TarInfo(key))
        extract = {"snowball-auto-extract": "true"}
        shelf.s3.put_object(
            Bucket=shelf.bucket, Key="a.tar", Body=data.getvalue(), Metadata=extract
        )

    @pytest.mark.parametrize("key", ["folder/", "tab\there", "a/.../b"])
    async def test_an_odd_key_is_taken_exactly(self, shelf: S3Shelf, key: str) -> None:
        shelf.put(key.strip("/"), b"not this one")
        shelf.put(key, b"")
        assert await read(shelf.objects, Location(shelf.bucket, key)) == b""
        assert key in await keys_of(shelf, "**")

    @pytest.mark.parametrize("key", ["..", "a/../b", "./a"])
    async def test_a_key_that_minio_refuses_is_not_found(self, shelf: S3Shelf, key: str) -> None:
        shelf.put("b", b"not this one")
        shelf.put("a", b"not this one")
        assert await code_of(shelf.objects, Location(shelf.bucket, key)) == "not_found"

    async def test_each_version_is_read_as_it_was(self, shelf: S3Shelf) -> None:
        versions = self.two_versions(shelf)
        await each_version_is_as_it_was(shelf.objects, shelf.bucket, "versioned", versions)

    async def test_a_version_that_was_removed_is_changed(self, shelf: S3Shelf) -> None:
        version = next(iter(self.two_versions(shelf)))
        shelf.s3.delete_object(Bucket=shelf.bucket, Key="versioned", VersionId=version)
        location = Location(shelf.bucket, "versioned", version_id=version)
        assert await code_of(shelf.objects, location) == "changed"

    async def test_a_version_that_is_a_deletion_is_changed(self, shelf: S3Shelf) -> None:
        self.two_versions(shelf)
        marker = shelf.s3.delete_object(Bucket=shelf.bucket, Key="versioned")["VersionId"]
        location = Location(shelf.bucket, "versioned", version_id=marker)
        assert await code_of(shelf.objects, location) == "changed"
        assert await code_of(shelf.objects, Location(shelf.bucket, "versioned")) == "not_found"

    async def test_a_version_that_never_was_is_changed(self, shelf: S3Shelf) -> None:
        self.two_versions(shelf)
        location = Location(shelf.bucket, "versioned", version_id="no-such-version")
        assert await code_of(shelf.objects, location) == "changed"

    @pytest.mark.parametrize(
        "wrong",
        [{"secret": "wrong"}, {"key": "nobody"}, {"key": None, "secret": None, "anon": True}],
    )
    @pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
    async def test_without_the_right_to_read_it_is_forbidden(
        self, services: Services, s3: Any, bucket: str, client: Any, wrong: dict[str, Any]
    ) -> None:
        s3.put_object(Bucket=bucket, Key="private", Body=b"x")
        right = {"key": services.key, "secret": services.secret, "region": services.region}
        objects = client(config.Objects(endpoint_url=services.endpoint_url, **(right | wrong)))
        assert await code_of(objects, Location(bucket, "private")) == "forbidden"
        await objects.aclose()

    @staticmethod
    def two_versions(shelf: S3Shelf) -> dict[str, bytes]:
        shelf.s3.put_bucket_versioning(
            Bucket=shelf.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        return {
            shelf.s3.put_object(Bucket=shelf.bucket, Key="versioned", Body=data)["VersionId"]: data
            for data in (b"the first", b"and the second")
        }
