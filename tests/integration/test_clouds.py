"""The contract of object stores over the stand-ins of Google and Azure, by the product's factory.

They are skipped unless the stack was brought up with them (`scripts/stack up --with gcs,azure`).
"""

from collections.abc import AsyncIterator

import msgspec
import pytest

from penstock.adapters.stores.choice import open_store
from penstock.errors import Unreachable
from penstock.ports import Location
from tests.adapters.stores.contract import (
    ObjectsContract,
    Shelf,
    code_of,
    each_version_is_as_it_was,
    read,
)
from tests.support.clouds import SHELVES, AzureShelf, GcsShelf
from tests.support.services import Services, Unavailable


@pytest.fixture(params=list(SHELVES))
async def shelf(
    request: pytest.FixtureRequest, services: Services
) -> AsyncIterator[GcsShelf | AzureShelf]:
    try:
        shelf = SHELVES[request.param]()
    except Unavailable as missing:
        pytest.skip(str(missing))
    shelf.objects = open_store("cloud", shelf.settings)
    yield shelf
    await shelf.objects.aclose()
    shelf.close()


pytestmark = pytest.mark.model_servers("gcs", "azure")


class TestClouds(ObjectsContract):
    """Plus what paths cannot name, rights, and generations."""

    @pytest.mark.parametrize("key", ["a//b", "trail/", "/lead", "..", "./file"])
    async def test_a_key_that_would_become_another_is_not_read(
        self, shelf: GcsShelf | AzureShelf, key: str
    ) -> None:
        for name in ("a/b", "trail", "lead", "file"):
            shelf.put(name, b"not this one")
        assert await code_of(shelf.objects, Location(shelf.bucket, key)) == "not_found"

    async def test_a_version_that_never_was_is_changed(self, shelf: GcsShelf | AzureShelf) -> None:
        shelf.put("file", b"x")
        for version in ("1234567890", "no-such-version"):
            location = Location(shelf.bucket, "file", version_id=version)
            assert await code_of(shelf.objects, location) == "changed"

    async def test_listing_a_missing_bucket_is_not_found(self, shelf: Shelf) -> None:
        if isinstance(shelf, GcsShelf):
            pytest.skip("fake-gcs-server lists a bucket that is not there as an empty one")
        await super().test_listing_a_missing_bucket_is_not_found(shelf)

    async def test_each_generation_is_read_as_it_was(self, shelf: GcsShelf | AzureShelf) -> None:
        if not isinstance(shelf, GcsShelf):
            pytest.skip("Azurite keeps no versions")
        shelf.keep_versions()
        versions = {shelf.version("file", data): data for data in (b"the first", b"the second")}
        await each_version_is_as_it_was(shelf.objects, shelf.bucket, "file", versions)

    async def test_a_wrong_key_is_forbidden_and_the_setting_is_named(
        self, shelf: GcsShelf | AzureShelf
    ) -> None:
        if not isinstance(shelf, AzureShelf):
            pytest.skip("fake-gcs-server asks for no credentials")
        shelf.put("file", b"x")
        wrong = msgspec.structs.replace(shelf.settings, secret="d3Jvbmc=")
        objects = open_store("cloud", wrong)
        location = Location(shelf.bucket, "file", store="cloud")
        assert await code_of(objects, location) == "forbidden"
        await objects.aclose()

    async def test_nobody_there_is_waited_for(self, shelf: GcsShelf | AzureShelf) -> None:
        away = msgspec.structs.replace(shelf.settings, endpoint_url="http://127.0.0.1:1")
        objects = open_store("cloud", away)
        with pytest.raises(Unreachable, match=r"stores\.cloud\.endpoint_url"):
            await read(objects, Location(shelf.bucket, "file", store="cloud"))
        await objects.aclose()
