"""The contract of result objects on MinIO."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumers import config
from consumers.adapters.results_stores import open_results
from consumers.errors import EXIT_USAGE, Fatal
from consumers.ports import Location
from tests.adapters.results_contract import ResultsContract, Shelf
from tests.integration.test_objects import settings
from tests.support.services import Services


@pytest.fixture
async def shelf(services: Services, s3: Any, bucket: str) -> AsyncIterator[Shelf]:
    results = open_results(config.Config(objects=settings(services)), f"s3://{bucket}/x.jsonl")

    async def read(key: str) -> bytes | None:
        try:
            data: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None
        return data

    async def begun(key: str) -> int:
        return len(s3.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", ()))

    yield Shelf(results, results, bucket, read, begun)
    await results.aclose()


class TestMinio(ResultsContract):
    async def test_a_bucket_that_is_not_there_ends_the_worker(self, shelf: Shelf) -> None:
        upload = shelf.results.begin(Location("no-such-bucket", "a"))
        await upload.write(b"x")
        with pytest.raises(Fatal, match=r"output\.objects") as caught:
            await upload.complete()
        assert caught.value.exit_code == EXIT_USAGE
