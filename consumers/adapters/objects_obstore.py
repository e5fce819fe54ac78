"""Objects through obstore (Rust): the default, for a third of aiobotocore's CPU per small object.

Rule: keys that its path type would rewrite, and listings, go to the exact client behind it; all
else is one GET here. Owner of one obstore store per bucket. Cut bodies are resumed here, requests
are the caller's to repeat.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import obstore
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from consumers import config
from consumers.adapters.certificates import authorities, untrusted
from consumers.adapters.objects_common import (
    CHUNK_BYTES,
    CONNECT_TIMEOUT_S,
    DEFAULT_REGION,
    NO_SUCH_RANGE,
    READ_TIMEOUT_S,
    WHOLE_BYTES,
    check_bucket,
    check_credentials,
    check_part,
    is_odd,
    no_answer,
    no_credentials,
    no_pin,
    quoted,
    refusal,
    repeated,
    resuming,
)
from consumers.adapters.objects_s3fs import S3fsObjects
from consumers.errors import PenstockError
from consumers.ports import Body, Listed, Location, Part

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig, S3Credential

# Each store has its own connections, and bucket names come from messages: bounded, whoever writes.
MAX_STORES: Final = 128
# obstore's 30 s for a whole transfer would cut off a body that waits for room; silence is limited.
WHOLE_TRANSFER: Final = timedelta(days=1)
# botocore renews credentials that have less left, so whatever it hands out lasts as long.
CREDENTIALS_LAST: Final = timedelta(minutes=10)

_STATUS = re.compile(r"status code: (\d{3})")
_EMPTY_RANGE = re.compile(r'CONTENT_RANGE header: "bytes [^"]*/0"')
_CODE = re.compile(r"<Code>(\w+)</Code>")


class ObstoreObjects:
    """The port `Objects` over anything that speaks S3."""

    def __init__(self, settings: config.Objects, *, read_timeout_s: float = READ_TIMEOUT_S) -> None:
        self._exact = S3fsObjects(settings, read_timeout_s=read_timeout_s)
        self._store = lru_cache(MAX_STORES)(_s3_stores(settings, read_timeout_s))

    async def open(self, location: Location) -> Body:
        if is_odd(location.key):
            return await self._exact.open(location)
        check_bucket(location)
        options = _pinned(location)
        try:
            store = self._store(location.bucket)
            result = await obstore.get_async(store, location.key, options=options or None)
        except (BaseError, OSError) as error:
            raise translated(error, location) from None
        return ObstoreBody(store, location, result)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        if is_odd(location.key):
            return await self._exact.part(location, start, stop)
        check_bucket(location)
        return await repeated(lambda: self._part(location, start, stop))

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        options = _pinned(location)
        if start < 0:
            options["range"] = {"suffix": -start}
        else:
            options["range"] = {"offset": start} if stop is None else (start, stop)
        try:
            store = self._store(location.bucket)
            result = await obstore.get_async(store, location.key, options=options)
            data = bytes(await result.bytes_async())
        except (BaseError, OSError) as error:
            if start < 0 and _is_empty(error):
                return Part(b"", 0, location.etag, location.version_id)
            raise translated(error, location) from None
        meta = result.meta
        part = Part(data, meta["size"], meta["e_tag"], meta["version"])
        return check_part(part, location, start, stop)

    def list(self, bucket: str, pattern: str) -> AsyncIterator[Listed]:
        return self._exact.list(bucket, pattern)

    async def aclose(self) -> None:
        await self._exact.aclose()


class ObstoreBody:
    """A result whose body is read once, and asked for again from where it broke."""

    __slots__ = ("_chunks", "_location", "_result", "_store", "etag", "size", "version_id")

    def __init__(self, store: S3Store, location: Location, result: "GetResult") -> None:
        meta = result.meta
        self.size = meta["size"]
        self.etag = meta["e_tag"]
        self.version_id = meta["version"]
        self._store = store
        self._location = location
        self._result: GetResult | None = result
        self._chunks: AsyncGenerator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = resuming(self.size, self._read_from, self._location)
        return self._chunks

    async def _read_from(self, offset: int) -> AsyncGenerator[bytes]:
        try:
            result = self._result or await self._reopen(offset)
            self._result = None
            if self.size - offset <= WHOLE_BYTES:
                yield bytes(await result.bytes_async())
            else:
                async for chunk in result.stream(CHUNK_BYTES):
                    yield chunk
        except (BaseError, OSError) as error:
            raise translated(error, self._location) from None

    async def _reopen(self, offset: int) -> "GetResult":
        options: GetOptions = {"range": {"offset": offset}}
        if self.etag is not None:
            options["if_match"] = self.etag
        elif self.version_id is None:
            raise no_pin(self._location)
        if self.version_id is not None:
            options["version"] = self.version_id
        return await obstore.get_async(self._store, self._location.key, options=options)

    async def aclose(self) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()
        self._result = None


def _pinned(location: Location) -> "GetOptions":
    if location.version_id is not None:
        return {"version": location.version_id}
    return {} if location.etag is None else {"if_match": quoted(location.etag)}


def _is_empty(error: Exception) -> bool:
    """Is this the answer to a question for the last bytes of an object that has none? MinIO tells
    of a range of none of its 0 bytes, which obstore cannot read.
    """
    text = str(error)
    said = _STATUS.search(text)
    return _EMPTY_RANGE.search(text) is not None or (
        said is not None and int(said[1]) == NO_SUCH_RANGE
    )


def _s3_stores(settings: config.Objects, read_timeout_s: float) -> Callable[[str], S3Store]:
    """How to reach a bucket: as configured, with botocore's chain where keys are not."""
    check_credentials(settings)
    try:
        session = Session(profile=settings.profile)
        region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
        credentials = None if settings.anon else _credentials(settings, session)
    except BotoCoreError as error:
        raise no_credentials(error) from None
    endpoint = {"endpoint": settings.endpoint_url} if settings.endpoint_url else {}
    options: Any = {
        **endpoint,
        "region": region,
        "skip_signature": settings.anon,
        "virtual_hosted_style_request": False,
    }
    client_options: ClientConfig = {
        "allow_http": (settings.endpoint_url or "").startswith("http:"),
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "read_timeout": timedelta(seconds=read_timeout_s),
        "timeout": WHOLE_TRANSFER,
    }
    if settings.ssl_cafile:
        client_options["root_certificate"] = authorities(settings.ssl_cafile, "objects.ssl_cafile")
    return lambda bucket: S3Store(
        bucket,
        config=options,
        credential_provider=credentials,
        client_options=client_options,
        retry_config={"max_retries": 0},
    )


def _credentials(settings: config.Objects, session: Session) -> "Callable[[], S3Credential]":
    """Asked when none are fresh; never the environment's token beside configured keys."""
    if settings.key is not None and settings.secret is not None:
        session.set_credentials(settings.key, settings.secret)
    source = session.get_credentials()
    if source is None:
        raise no_credentials("no credentials found")

    def fresh() -> "S3Credential":
        frozen = source.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    return fresh


def translated(error: Exception, location: Location) -> PenstockError:
    """What an error of obstore means: the status is only in its text."""
    text = str(error)
    said, code = _STATUS.search(text), _CODE.search(text)
    status = int(said[1]) if said else _status_without_answer(error, text)
    if status is None:
        untrusting = untrusted(text, "objects.ssl_cafile")
        return untrusting or no_answer(location, text.partition("\n")[0])
    return refusal(location, status, code[1] if code else "")


def _status_without_answer(error: Exception, text: str) -> int | None:
    """For errors without an HTTP answer: what S3 would have said; None when nobody answered."""
    match error:
        case FileNotFoundError():
            return 404
        case PermissionDeniedError() | UnauthenticatedError():
            return 403
        case PreconditionError():
            return 412
        case _:
            return 301 if "incorrectly configured region" in text else None
