"""The contract of result objects on MinIO."""

import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from yarl import URL

from penstock import config
from penstock.adapters.result_stores.results import open_results
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Location
from tests.adapters.result_stores.contract import CHUNK, LONG, ResultsContract, Shelf
from tests.integration.test_objects import settings
from tests.support.http_server import http_server
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


class LosesTheEnd:
    """Stands before the store; the answer to the first end of an upload is lost on its way."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.lost = 0

    async def forward(self, request: web.Request) -> web.Response:
        is_end = request.method == "POST" and "uploadId" in request.query
        address = URL(self._target + request.raw_path, encoded=True)
        body = io.BytesIO(await request.read())
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, address, data=body, headers=request.headers) as answer,
        ):
            text = await answer.read()
            headers = {k: v for k, v in answer.headers.items() if k != "Content-Length"}
        if is_end and not self.lost:
            self.lost += 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status, body=text, headers=headers)


async def test_a_long_result_is_complete_if_only_the_answer_to_its_end_was_lost(
    services: Services, s3: Any, bucket: str
) -> None:
    middle = LosesTheEnd(services.endpoint_url)
    async with http_server(middle.forward) as url:
        near = msgspec.structs.replace(settings(services), endpoint_url=url)
        results = open_results(config.Config(objects=near), f"s3://{bucket}/x.jsonl")
        upload = results.begin(Location(bucket, "x.jsonl"))
        for _ in range(LONG // len(CHUNK)):
            await upload.write(CHUNK)
        stored = await upload.complete()
        await results.aclose()
    there = s3.get_object(Bucket=bucket, Key="x.jsonl")
    assert (middle.lost, stored.version) == (1, there["ETag"])
    assert there["Body"].read() == CHUNK * (LONG // len(CHUNK))
