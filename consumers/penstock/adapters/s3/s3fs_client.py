"""Objects through s3fs: s3fs reads settings and credentials, its aiobotocore client reads bytes.

Rule: the store gets bucket and key exactly as they are named. s3fs's own file calls rewrite keys,
drop versions and leak connections, so they are not used. A body that is cut off is resumed here;
failed requests are retried by the caller.

Every error that botocore or aiohttp raises for a request is one of `CLIENT_ERRORS`. A redirect of
AWS goes to botocore, which finds the bucket's region; any other is an error, because aiohttp would
follow it to any host with the session token in the request.
"""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointProviderError,
    HTTPClientError,
    MissingDependencyException,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
    UnsupportedS3ConfigurationError,
)
from s3fs import S3FileSystem

from penstock import config
from penstock.adapters.http.certificates import trusting, untrusted
from penstock.adapters.http.connections import IDLE_S, keep_alive
from penstock.adapters.s3.buckets import check_credentials
from penstock.adapters.stores.names import Glob, check_bucket, name, section_of
from penstock.adapters.stores.refusals import (
    NO_SUCH_RANGE,
    REDIRECTS,
    Renewal,
    implausible_answer,
    no_answer,
    no_credentials,
    redirected,
    refusal,
)
from penstock.adapters.stores.transfer import (
    CHUNK_BYTES,
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    SLOW_CHUNK_BYTES,
    SLOW_SILENCES,
    WHOLE_BYTES,
    ResumedBody,
    check_coding,
    check_part,
    check_pin,
    check_rest,
    pin_of,
    quoted,
    read_part,
    repeated,
    span_of,
    wants_etag,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import PenstockError, Poison
from penstock.messages.urls import is_access_point
from penstock.ports import Listed, Location, ObjectBody, Part

# `ValueError` is among them because it is raised if the date of an answer cannot be read.
CLIENT_ERRORS = (
    ClientError,
    BotoCoreError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)
# Other digits than these are no number, and more of them are no time that anybody waits.
_SECONDS = re.compile(r"[0-9]{1,8}")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)")
_MOST_REFUSAL_BYTES: Final = 64 << 10
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn")


def refused_with(error: Exception) -> int:
    """The status of a refusal; 0 for other errors."""
    return status_of(error.response) if isinstance(error, ClientError) else 0


def status_of(answer: dict[str, Any]) -> int:
    status: int = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def sent(answer: dict[str, Any]) -> tuple[int, int]:
    """The half-open range of bytes that the answer announces; without a 206 the range begins at
    byte 0.
    """
    match = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
    length = answer.get("ContentLength")
    if status_of(answer) != 206 or match is None:
        return 0, length or 0
    start = int(match[1])
    return start, int(match[2]) + 1 if length is None else start + length


def _size_of(answer: dict[str, Any]) -> int:
    """The size of the whole object. Raises `ValueError` if the answer does not tell it."""
    if status_of(answer) == 206 and "ContentRange" not in answer:
        raise ValueError("206 without Content-Range")
    in_all = (answer.get("ContentRange") or "").rpartition("/")[2]
    return int(in_all or answer.get("ContentLength") or 0)


def translated(error: Exception, location: Location) -> PenstockError:
    """Our error for an error of botocore or aiohttp."""
    if isinstance(error, ClientError):
        metadata = error.response.get("ResponseMetadata", {})
        code = error.response.get("Error", {}).get("Code", "")
        retry_after = metadata.get("HTTPHeaders", {}).get("retry-after", "")
        return refusal(
            location,
            status_of(error.response) or 500,
            # if the answer has no body, botocore gives the status as the code
            "" if code.isdigit() else code,
            float(retry_after) if _SECONDS.fullmatch(retry_after) else None,
        )
    if isinstance(error, ParamValidationError):
        return Poison("not_found", f"{name(location)}: S3 allows no such name")
    if isinstance(error, MissingDependencyException):
        # An access point of several regions is signed by SigV4A, which botocore takes from awscrt.
        return Poison("forbidden", f"{name(location)}: pip install awscrt ({error})")
    if isinstance(error, EndpointProviderError | UnsupportedS3ConfigurationError):
        return Poison("not_found", f"{name(location)}: {error}")
    if isinstance(error, NoCredentialsError | ProfileNotFound | CredentialRetrievalError):
        return no_credentials(error, section_of(location))
    if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), Redirected):
        return redirected(location)
    if isinstance(error, ValueError) or type(error) is HTTPClientError:
        return implausible_answer(location, error)
    return untrusted(str(error), f"{section_of(location)}.ssl_cafile") or no_answer(location, error)


class Redirected(Exception):
    """The store answered with a redirect."""


class _NoRedirects:
    """The part of an aiohttp session that aiobotocore uses."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, *args: Any, **options: Any) -> Any:
        answer = await self._session.request(*args, **options, allow_redirects=False)
        if answer.status in REDIRECTS and not (answer.url.host or "").endswith(_AWS):
            answer.close()
            raise Redirected(answer.status)
        return answer if answer.status < 300 else _Refusal(answer)


class _Refusal:
    """The part of a refusal that aiobotocore uses. It would read a body without end."""

    def __init__(self, answer: Any) -> None:
        self.status, self.url, self.raw_headers = answer.status, answer.url, answer.raw_headers
        self._answer = answer

    async def read(self) -> bytes:
        """Nothing of a long body, so that only the status counts."""
        body = bytearray()
        async for piece in self._answer.content.iter_any():
            body += piece
            if len(body) > _MOST_REFUSAL_BYTES:
                self._answer.close()
                return b""
        return bytes(body)


class NoRedirectSession(AIOHTTPSession):  # type: ignore[misc]
    """aiobotocore's HTTP session, changed so that it never follows a redirect. It is a subclass,
    because aiobotocore has no setting for redirects.
    """

    async def _get_session(self, proxy_url: str | None) -> _NoRedirects:
        return _NoRedirects(await super()._get_session(proxy_url))


class S3fsObjects:
    """Implements the port `Objects` for any server that speaks S3."""

    def __init__(
        self,
        settings: config.Access,
        *,
        section: str = DEFAULT,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        check_credentials(settings, section)
        self._settings = settings
        self._section = section
        self._read_timeout_s = read_timeout_s
        self._slow_s = SLOW_SILENCES * read_timeout_s
        self._files = _files(settings, section, read_timeout_s)
        self._client: Any = None
        self._retired: list[Any] = []
        self._renewal = Renewal()

    async def open(self, location: Location) -> ObjectBody:
        self._check_bucket(location)
        answer = await self.get(location, _pinned(location))
        status, length = status_of(answer), answer.get("ContentLength")
        if status != 200 or length is None:
            answer["Body"].close()
            raise implausible_answer(location, f"{status} with Content-Length {length}")
        try:
            check_pin(location, answer.get("ETag"))
        except Poison:
            answer["Body"].close()
            raise
        return S3Body(self, location, answer, self._read_timeout_s)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        self._check_bucket(location)
        return await repeated(lambda: self._part(location, start, stop))

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        asked = f"{start}" if start < 0 else f"{start}-{'' if stop is None else stop - 1}"
        try:
            answer = await self._ask(location, _pinned(location) | {"Range": f"bytes={asked}"})
            with closing(answer["Body"]) as body:
                size = _size_of(answer)
                first, last = span_of(start, stop, size)
                check_rest(location, (first, last), sent(answer), (None, None))
                chunks = full_chunks(body, SLOW_CHUNK_BYTES)
                data = await read_part(location, last - first, chunks, self._slow_s)
        except CLIENT_ERRORS as error:
            if start < 0 and refused_with(error) == NO_SUCH_RANGE:
                return Part(b"", 0, location.etag, location.version_id)
            raise await self._meant(error, location) from None
        check_pin(location, answer.get("ETag"))
        etag, version_id = pin_of(answer.get("ETag")), pin_of(answer.get("VersionId"))
        part = Part(data, size, etag, version_id)
        return check_part(part, location, start, stop)

    async def get(self, location: Location, conditions: dict[str, str]) -> dict[str, Any]:
        """Sends one GET, and returns the answer before its body is read."""
        try:
            return await self._ask(location, conditions)
        except CLIENT_ERRORS as error:
            raise await self._meant(error, location) from None

    async def _ask(self, location: Location, conditions: dict[str, str]) -> dict[str, Any]:
        client = await self.client()
        async with asyncio.timeout(self._slow_s):
            answer: dict[str, Any] = await client.get_object(
                Bucket=location.bucket, Key=location.key, **conditions
            )
        return answer

    async def client(self) -> Any:
        """aiobotocore's client. Other files use it for calls that the port does not have."""
        if self._client is None:
            self._client = await self._files.set_session()
        return self._client

    def _check_bucket(self, location: Location) -> None:
        """An access point is asked at a subdomain of its own."""
        endpoint_url = self._settings.endpoint_url
        if not is_access_point(location.bucket):
            check_bucket(location)
        elif endpoint_url and not _has_subdomains(endpoint_url):
            raise Poison(
                "not_found",
                f"{name(location)}: the store {endpoint_url} has no access points; name the "
                f"bucket, or leave out {self._section}.endpoint_url",
            )

    async def _meant(self, error: Exception, location: Location) -> PenstockError:
        """Translate the error. If it says that the credentials have expired, look for new ones."""
        meant = translated(error, location)
        if self._renewal.is_due(meant):
            await self._renew()
        return meant

    async def _renew(self) -> None:
        """Let the next request look for credentials anew, because botocore does not read a
        credentials file twice. The former client stays open, because its bodies may still be read;
        the client before that one is closed.
        """
        for before in self._retired:
            await before.close()
        self._retired = [] if self._client is None else [self._client]
        self._client = None
        self._files = _files(self._settings, self._section, self._read_timeout_s)

    async def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        location = Location(bucket, pattern, store=store)
        self._check_bucket(location)
        glob = Glob.of(pattern)
        try:
            pages = (await self.client()).get_paginator("list_objects_v2")
            async for page in pages.paginate(Bucket=bucket, Prefix=glob.prefix):
                for entry in page.get("Contents", ()):
                    if glob.matches(entry["Key"]):
                        place = Location(bucket, entry["Key"], None, entry["ETag"], store)
                        yield Listed(place, entry["Size"])
        except CLIENT_ERRORS as error:
            raise translated(error, location) from None

    async def aclose(self) -> None:
        clients = [*self._retired, self._client]
        self._retired, self._client = [], None
        for client in clients:
            if client is not None:
                await client.close()


async def full_chunks(stream: Any, nbytes: int) -> AsyncGenerator[bytes]:
    """Chunks of `nbytes`; the last one may be shorter. Those of the stream may have a byte, so that
    a store that sends a byte now and then would never be slow.
    """
    chunk = bytearray()
    while piece := await stream.read(nbytes - len(chunk)):
        chunk += piece
        if len(chunk) == nbytes:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


class S3Body(ResumedBody):
    def __init__(
        self,
        objects: S3fsObjects,
        location: Location,
        answer: dict[str, Any],
        read_timeout_s: float,
    ) -> None:
        version = answer.get("ETag"), answer.get("VersionId")
        super().__init__(location, answer["ContentLength"], *version, read_timeout_s)
        self._objects = objects
        self._stream: Any = answer["Body"]
        self._coding = answer.get("ContentEncoding")

    async def _read_from(self, offset: int, is_slow: bool) -> AsyncGenerator[bytes]:
        if offset or self._stream is None:
            self._stream = await self._reopen(offset)
        try:
            if self.size - offset <= WHOLE_BYTES and not is_slow:
                yield await self._stream.read()
            else:
                chunk_bytes = SLOW_CHUNK_BYTES if is_slow else CHUNK_BYTES
                async for chunk in full_chunks(self._stream, chunk_bytes):
                    yield chunk
        except CLIENT_ERRORS as error:
            raise translated(error, self._location) from None
        finally:
            self._drop()

    async def _reopen(self, offset: int) -> Any:
        pin = {"Range": f"bytes={offset}-"}
        self._check_pinned()
        if self.etag is not None:
            pin["IfMatch"] = self.etag
        if self.version_id is not None:
            pin["VersionId"] = self.version_id
        answer = await self._objects.get(self._location, pin)
        etags = self.etag, answer.get("ETag")
        try:
            check_rest(self._location, (offset, self.size), sent(answer), etags)
            check_coding(self._location, self._coding, answer.get("ContentEncoding"))
        except PenstockError:
            answer["Body"].close()
            raise
        return answer["Body"]

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _has_subdomains(url: str) -> bool:
    """False if the URL's host is an IP address or one word, such as `minio`."""
    host = urlsplit(url).hostname or ""
    return "." in host and not host.rpartition(".")[2].isdigit()


def _pinned(location: Location) -> dict[str, str]:
    pin: dict[str, str] = {}
    if location.version_id is not None:
        pin["VersionId"] = location.version_id
    if location.etag is not None and wants_etag(location):
        pin["IfMatch"] = quoted(location.etag)
    return pin


def _files(settings: config.Access, section: str, read_timeout_s: float) -> S3FileSystem:
    style: str = settings.addressing
    if style == "auto" and settings.endpoint_url:
        style = "path"
    return S3FileSystem(
        asynchronous=True,
        skip_instance_cache=True,
        anon=settings.anon,
        endpoint_url=settings.endpoint_url,
        key=settings.key,
        secret=settings.secret,
        token=settings.token,
        client_kwargs=_client_options(settings, section),
        config_kwargs={
            "http_session_cls": NoRedirectSession,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": read_timeout_s,
            "retries": {"total_max_attempts": 1},
            # 0 means no limit. A body whose reader waits for room keeps its connection, so with the
            # default limit ten such bodies would block all reads.
            "max_pool_connections": 0,
            "connector_args": {"keepalive_timeout": IDLE_S, "socket_factory": _kept_alive},
            # `profile` has read all that leads to another address.
            "ignore_configured_endpoint_urls": True,
            "use_dualstack_endpoint": False,
            "use_fips_endpoint": False,
            "response_checksum_validation": "when_required",
            "s3": {"addressing_style": style, "use_accelerate_endpoint": False},
        },
        **({"profile": settings.profile} if settings.profile else {}),
    )


def _kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    keep_alive(sock)
    return sock


def _client_options(settings: config.Access, section: str) -> dict[str, str]:
    options = {"region_name": settings.region} if settings.region else {}
    if settings.ssl_cafile:
        trusting(settings.ssl_cafile, f"{section}.ssl_cafile")  # refuses a wrong file now
        options["verify"] = settings.ssl_cafile
    return options
