"""Objects through s3fs: its settings and credentials, its aiobotocore client for the bytes.

Rule: bucket and key go to the store exactly as named; s3fs's own file calls rewrite keys, drop
versions and keep connections. Owner of one session, made at first use. Cut bodies are resumed here,
requests are the caller's to repeat.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
)
from s3fs import S3FileSystem

from consumers import config
from consumers.adapters.certificates import trusting, untrusted
from consumers.adapters.objects_common import (
    CHUNK_BYTES,
    CONNECT_TIMEOUT_S,
    NO_SUCH_RANGE,
    READ_TIMEOUT_S,
    WHOLE_BYTES,
    Glob,
    check_bucket,
    check_credentials,
    check_part,
    name,
    no_answer,
    no_credentials,
    no_pin,
    quoted,
    refusal,
    repeated,
    resuming,
)
from consumers.errors import PenstockError, Poison
from consumers.ports import Body, Listed, Location, Part

_CLIENT_ERRORS = (ClientError, BotoCoreError, aiohttp.ClientError, OSError)


class S3fsObjects:
    """The port `Objects` over anything that speaks S3."""

    def __init__(self, settings: config.Objects, *, read_timeout_s: float = READ_TIMEOUT_S) -> None:
        check_credentials(settings)
        self._files = S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            anon=settings.anon,
            endpoint_url=settings.endpoint_url,
            key=settings.key,
            secret=settings.secret,
            client_kwargs=_client_options(settings),
            config_kwargs={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": read_timeout_s,
                "retries": {"total_max_attempts": 1},
                # Unlimited: a body that waits for room keeps its connection; ten would stop all.
                "max_pool_connections": 0,
                "response_checksum_validation": "when_required",
                **({"s3": {"addressing_style": "path"}} if settings.endpoint_url else {}),
            },
            **({"profile": settings.profile} if settings.profile else {}),
        )
        self._client: Any = None

    async def open(self, location: Location) -> Body:
        check_bucket(location)
        return S3Body(self, location, await self.get(location, _pinned(location)))

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        check_bucket(location)
        return await repeated(lambda: self._part(location, start, stop))

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        asked = f"{start}" if start < 0 else f"{start}-{'' if stop is None else stop - 1}"
        try:
            answer = await self._ask(location, _pinned(location) | {"Range": f"bytes={asked}"})
            async with answer["Body"] as body:
                data = await body.read()
        except _CLIENT_ERRORS as error:
            if start < 0 and _status(error) == NO_SUCH_RANGE:
                return Part(b"", 0, location.etag, location.version_id)
            raise translated(error, location) from None
        size = int(answer.get("ContentRange", "").rpartition("/")[2] or len(data))
        part = Part(data, size, answer.get("ETag"), answer.get("VersionId"))
        return check_part(part, location, start, stop)

    async def get(self, location: Location, conditions: dict[str, str]) -> dict[str, Any]:
        """One GET, with its body unread."""
        try:
            return await self._ask(location, conditions)
        except _CLIENT_ERRORS as error:
            raise translated(error, location) from None

    async def _ask(self, location: Location, conditions: dict[str, str]) -> dict[str, Any]:
        if self._client is None:
            self._client = await self._files.set_session()
        answer: dict[str, Any] = await self._client.get_object(
            Bucket=location.bucket, Key=location.key, **conditions
        )
        return answer

    async def list(self, bucket: str, pattern: str) -> AsyncIterator[Listed]:
        location = Location(bucket, pattern)
        check_bucket(location)
        glob = Glob.of(pattern)
        try:
            if self._client is None:
                self._client = await self._files.set_session()
            pages = self._client.get_paginator("list_objects_v2")
            async for page in pages.paginate(Bucket=bucket, Prefix=glob.prefix):
                for entry in page.get("Contents", ()):
                    if glob.matches(entry["Key"]):
                        yield Listed(
                            Location(bucket, entry["Key"], etag=entry["ETag"]), entry["Size"]
                        )
        except _CLIENT_ERRORS as error:
            raise translated(error, location) from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


class S3Body:
    """A response whose body is read once, and asked for again from where it broke."""

    def __init__(self, objects: S3fsObjects, location: Location, answer: dict[str, Any]) -> None:
        self.size: int = answer["ContentLength"]
        self.etag: str | None = answer.get("ETag")
        self.version_id: str | None = answer.get("VersionId")
        self._objects = objects
        self._location = location
        self._stream: Any = answer["Body"]
        self._chunks: AsyncGenerator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = resuming(self.size, self._read_from, self._location)
        return self._chunks

    async def _read_from(self, offset: int) -> AsyncGenerator[bytes]:
        if offset or self._stream is None:
            self._stream = await self._reopen(offset)
        try:
            if self.size - offset <= WHOLE_BYTES:
                yield await self._stream.read()
            else:
                async for chunk in self._stream.iter_chunks(CHUNK_BYTES):
                    yield chunk
        except _CLIENT_ERRORS as error:
            raise translated(error, self._location) from None
        finally:
            self._drop_stream()

    async def _reopen(self, offset: int) -> Any:
        pin = {"Range": f"bytes={offset}-"}
        if self.etag is not None:
            pin["IfMatch"] = self.etag
        elif self.version_id is None:
            raise no_pin(self._location)
        if self.version_id is not None:
            pin["VersionId"] = self.version_id
        return (await self._objects.get(self._location, pin))["Body"]

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def aclose(self) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()
        self._drop_stream()


def _pinned(location: Location) -> dict[str, str]:
    if location.version_id is not None:
        return {"VersionId": location.version_id}
    return {} if location.etag is None else {"IfMatch": quoted(location.etag)}


def _status(error: Exception) -> int | None:
    if not isinstance(error, ClientError):
        return None
    status: int | None = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _client_options(settings: config.Objects) -> dict[str, str]:
    options = {"region_name": settings.region} if settings.region else {}
    if settings.ssl_cafile:
        trusting(settings.ssl_cafile, "objects.ssl_cafile")  # a file that is wrong is told at once
        options["verify"] = settings.ssl_cafile
    return options


def translated(error: Exception, location: Location) -> PenstockError:
    """What an error of botocore or aiohttp means."""
    if isinstance(error, ClientError):
        metadata = error.response.get("ResponseMetadata", {})
        retry_after = metadata.get("HTTPHeaders", {}).get("retry-after", "")
        return refusal(
            location,
            _status(error) or 500,
            error.response.get("Error", {}).get("Code", ""),
            float(retry_after) if retry_after.isdigit() else None,
        )
    if isinstance(error, ParamValidationError):
        return Poison("not_found", f"{name(location)}: S3 allows no such name")
    if isinstance(error, NoCredentialsError | ProfileNotFound | CredentialRetrievalError):
        return no_credentials(error)
    return untrusted(str(error), "objects.ssl_cafile") or no_answer(location, error)
