"""Objects through obstore, a library in Rust: a small object costs a third of the CPU that
aiobotocore needs.

Rule: an object is read by one GET. Left to another client, `exact`, are keys that obstore's path
type would rewrite; empty objects; listings; access points and directory buckets; and AWS buckets in
another region. A body that is cut off is resumed here; the caller retries failed requests.

obstore cannot close a connection. So a store is replaced as a whole when it is old, and when a
request is silent for too long, which is then made once more; what still reads keeps the former
store.
"""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from penstock import config
from penstock.adapters.http.certificates import untrusted
from penstock.adapters.http.connections import AGE_S, SILENCE_S, SILENT_TIMES
from penstock.adapters.s3.buckets import NOWHERE, Buckets, s3_buckets
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.names import check_bucket, is_for_botocore, name, section_of
from penstock.adapters.stores.refusals import (
    NO_SUCH_RANGE,
    Elsewhere,
    NoBucket,
    Renewal,
    implausible_answer,
    no_answer,
    redirected,
    refusal,
)
from penstock.adapters.stores.transfer import (
    CHUNK_BYTES,
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
    wants_etag,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Fatal, LockedOut, PenstockError, Poison, Transient, usage
from penstock.ports import Listed, Location, ObjectBody, Objects, Part

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

_STATUS = re.compile(r"status code: (\d{3})")
_EMPTY_RANGE = re.compile(r'CONTENT_RANGE header: "bytes [^"]*/0"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
# obstore's words for a redirect to another host, or from https to http.
_REDIRECTED = re.compile(rf"\b{re.escape(NOWHERE)}|BadScheme|URL scheme is not allowed")
# obstore's words for an answer whose head cannot be read, whose redirects form a circle, or which
# is another range than the one that was asked for.
_IMPLAUSIBLE = re.compile(
    r"source: Header \{|\bParse\(|kind: Redirect\b|non-partial response|(?i:content.range) header|"
    r"Requested \d+\.\.\d+, got"
)

# The patterns and codes from here on are for Google and Azure.
_CLOUD_STATUS = re.compile(r"status code: (\d{3})|(\b404 Not Found)")
_CLOUD_CODE = re.compile(r"<Code>(\w+)</Code>|[Ee]rror[- ][Cc]ode: ?\"?(\w+)")
# Errors of the cloud's identity service, which gives a token before the store is asked.
_IDENTITY = re.compile(
    r"performing token request|getting token|Generic (?:GCS|MicrosoftAzure) "
    r"error: .*(?:token|credential)",
    re.IGNORECASE,
)

_NO_SUCH_BYTES = re.compile(r"Wanted range starting at \d+, but object was only")

_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_ARCHIVED: Final = frozenset({"BlobArchived", "BlobBeingRehydrated"})
_EXPIRED: Final = frozenset({"ExpiredToken", "InvalidAuthenticationInfo", "TokenExpired"})
_GONE: Final = frozenset(
    {
        "ConditionNotMet",
        "TargetConditionNotMet",
        "SnapshotNotPresent",
        "InvalidVersionForPageBlobOperation",
    }
)
# Error codes for a version id that the cloud cannot parse. No version of the cloud has such an id.
_BAD_PIN: Final = frozenset({"InvalidArgument", "InvalidQueryParameterValue", "InvalidHeaderValue"})


def is_empty(error: Exception) -> bool:
    """True if the last bytes of an empty object were asked for. MinIO then answers with a range
    that states 0 bytes as the size of the object, and obstore cannot parse this range; other stores
    answer 416.
    """
    text = str(error)
    match = _STATUS.search(text)
    return _EMPTY_RANGE.search(text) is not None or (
        match is not None and int(match[1]) == NO_SUCH_RANGE
    )


def settings_of_panic(error: Exception, location: Location) -> Exception:
    """A panic of the Rust library as an error that says what to look at; other errors unchanged.
    Only values that cannot stand in a request are known to cause panics: those of the settings, and
    of credentials that the library finds by itself. The class cannot be imported.
    """
    if type(error).__name__ not in ("RustPanic", "PanicException"):
        return error
    return usage(
        f"{name(location)}: the store's client failed while it made a request ({error}); look for "
        f"line breaks and characters that are not ASCII in {section_of(location)} and in the "
        "credentials of this machine"
    )


def translated(error: Exception, location: Location) -> PenstockError:
    """Our error for an error of obstore. For most statuses, only the error's text tells the
    status.
    """
    text = str(error)
    status_match, code = _STATUS.search(text), _CODE.search(text)
    status = int(status_match[1]) if status_match else _status_without_answer(error, text)
    if status is None and _REDIRECTED.search(text):
        return redirected(location)
    if status is None and _IMPLAUSIBLE.search(text):
        return implausible_answer(location, text.partition("\n")[0])
    if status is None:
        untrusting = untrusted(text, f"{section_of(location)}.ssl_cafile")
        return untrusting or no_answer(location, text.partition("\n")[0])
    return refusal(location, status, code[1] if code else "")


def _status_without_answer(error: Exception, text: str) -> int | None:
    """The status, as far as the class of the error tells it; None if no answer came."""
    match error:
        case FileNotFoundError():
            return 404
        case PermissionDeniedError() | UnauthenticatedError():
            return 403
        case PreconditionError():
            return 412
        case _:
            return 301 if "incorrectly configured region" in text else None


def cloud_translated(error: Exception, location: Location) -> PenstockError:
    text = str(error)
    match = _CLOUD_CODE.search(text)
    code = (match[1] or match[2]) if match else ""
    message = f"{name(location)}: the store answered {code or 'that it is not there'}"
    section = section_of(location)
    if code in _NO_BUCKET:
        gone = "it is gone, or never was; create it, or correct the reference or"
        return NoBucket("not_found", f"{message}: {gone} {section}")
    if code in _ARCHIVED:
        return Poison("forbidden", f"{message}: it is archived; rehydrate it first")
    if code in _EXPIRED:
        return LockedOut(f"{message}; set this machine's clock, or give fresh credentials")
    if location.version_id is not None and (
        isinstance(error, FileNotFoundError) or code in _BAD_PIN
    ):
        return Poison(
            "changed", f"{message}: the pinned version is gone; reference the present one"
        )
    if code in _GONE or _NO_SUCH_BYTES.search(text):
        return Poison(
            "changed", f"{message}: the pinned version is gone; reference the present one"
        )
    if _CLOUD_STATUS.search(text) is None and _IDENTITY.search(text):
        return Transient(
            f"{name(location)}: no token ({text.partition(chr(10))[0]}); check the "
            f"credentials of {section}"
        )
    return translated(error, location)


T = TypeVar("T")

# The most stores that are kept. A bound is needed, because bucket names come from messages.
MAX_STORES: Final = 128


class _KeptStore:
    def __init__(self, store: "ObjectStore", now_s: float) -> None:
        self.store = store
        self.ends_s = now_s + AGE_S * random.uniform(2 / 3, 4 / 3)
        # How long the slowest answer took. None: there was no answer yet, so there is no connection
        # that could have been forgotten.
        self.slowest_s: float | None = None


class KeptStores:
    """`opens`: a function that opens a bucket, which takes some milliseconds. `most_s`: how long an
    answer's head, or a whole error answer, may take.
    """

    def __init__(self, opens: Buckets, most_s: float = SLOW_SILENCES * READ_TIMEOUT_S) -> None:
        self._opens = opens
        self._most_s = most_s
        self._kept: dict[str, _KeptStore] = {}

    def of(self, bucket: str) -> "ObjectStore":
        return self._of(bucket).store

    async def ask(
        self, bucket: str, question: Callable[["ObjectStore"], Awaitable[T]]
    ) -> tuple["ObjectStore", T]:
        """Returns the answer, and the store that gave it. The answer should come at once, so this
        is for the head of an object, not for its bytes.
        """
        kept = self._of(bucket)
        if kept.slowest_s is not None:
            try:
                async with asyncio.timeout(max(SILENCE_S, SILENT_TIMES * kept.slowest_s)):
                    return kept.store, await self._asked(kept, question)
            except TimeoutError:
                if self._kept.get(bucket) is kept:
                    del self._kept[bucket]
                kept = self._of(bucket)
        try:
            async with asyncio.timeout(self._most_s):
                return kept.store, await self._asked(kept, question)
        except TimeoutError:
            raise TimeoutError(f"no whole answer in {self._most_s:g} s") from None

    def _of(self, bucket: str) -> _KeptStore:
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.pop(bucket, None)
        if kept is None or now_s >= kept.ends_s:
            kept = _KeptStore(self._opens(bucket), now_s)
            if len(self._kept) >= MAX_STORES:
                del self._kept[next(iter(self._kept))]  # the one that was not used for longest
        self._kept[bucket] = kept
        return kept

    @staticmethod
    async def _asked(kept: _KeptStore, question: Callable[["ObjectStore"], Awaitable[T]]) -> T:
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        answer = await question(kept.store)
        kept.slowest_s = max(now_s() - began_s, kept.slowest_s or 0.0)
        return answer


class ByObstore:
    """Implements the port `Objects` by obstore. `reach`: a function that looks for credentials and
    returns the function that opens a bucket. `exact`: the client for all that obstore cannot do
    exactly. `meaning`: a function that translates obstore's errors.
    """

    def __init__(
        self,
        reach: Callable[[], Buckets],
        exact: Objects,
        meaning: Callable[[Exception, Location], PenstockError],
        read_timeout_s: float,
        *,
        has_regions: bool = False,
    ) -> None:
        self._has_regions = has_regions
        # Buckets that were found to be in another region than ours.
        self._elsewhere: set[str] = set()
        self._reach = reach
        self._exact = exact
        self._meaning = meaning
        self._read_timeout_s = read_timeout_s
        self._renewal = Renewal()
        self._slow_s = SLOW_SILENCES * read_timeout_s
        self._stores = KeptStores(reach(), self._slow_s)

    async def open(self, location: Location) -> ObjectBody:
        if self._is_for_exact(location):
            return await self._exact.open(location)
        check_bucket(location)
        options = _pinned(location)
        try:
            store, result = await self._get(location, options or None)
        except (BaseError, OSError) as error:
            meant = self._meant(error, location)
            if self._is_in_other_region(location, meant):
                return await self._exact.open(location)
            raise meant from None
        except Exception as error:
            raise settings_of_panic(error, location) from None
        check_pin(location, result.meta["e_tag"])
        if not result.meta["size"]:
            # Perhaps a proxy answered 204, and so this is not an object. obstore hides the status,
            # but the exact client sees it.
            return await self._exact.open(location)
        return ObstoreBody(store, location, result, self._meaning, self._read_timeout_s)

    async def _get(
        self, location: Location, options: "GetOptions | None"
    ) -> "tuple[ObjectStore, GetResult]":
        def get(store: "ObjectStore") -> "Awaitable[GetResult]":
            return obstore.get_async(store, location.key, options=options)

        return await self._stores.ask(location.bucket, get)

    def _meant(self, error: Exception, location: Location) -> PenstockError:
        """Translate obstore's error. If it says that the credentials have expired, look for new
        ones.
        """
        meant = self._meaning(error, location)
        if self._renewal.is_due(meant):
            self._renew()
        return meant

    def _renew(self) -> None:
        """Look for credentials anew, because obstore keeps those that it was given, but a
        credentials file may have been renewed. If no new credentials are found, the old ones stay.
        """
        with suppress(Fatal):
            self._stores = KeptStores(self._reach(), self._slow_s)

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        if self._is_for_exact(location):
            return await self._exact.part(location, start, stop)
        check_bucket(location)
        try:
            return await repeated(lambda: self._part(location, start, stop))
        except Elsewhere as error:
            if self._is_in_other_region(location, error):
                return await self._exact.part(location, start, stop)
            raise

    def _is_for_exact(self, location: Location) -> bool:
        bucket = location.bucket
        return bucket in self._elsewhere or is_for_botocore(bucket, location.key)

    def _is_in_other_region(self, location: Location, error: PenstockError) -> bool:
        """True if the bucket is in another region, so that the exact client must ask there. Such a
        bucket is remembered. Once `MAX_STORES` buckets are remembered, the region of a further
        bucket is found out anew at each request.
        """
        is_elsewhere = self._has_regions and isinstance(error, Elsewhere)
        if is_elsewhere and len(self._elsewhere) < MAX_STORES:
            self._elsewhere.add(location.bucket)
        return is_elsewhere

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        options = _pinned(location)
        if start < 0:
            options["range"] = {"suffix": -start}
        else:
            options["range"] = {"offset": start} if stop is None else (start, stop)
        try:
            _, result = await self._get(location, options)
            first, last = result.range
            chunks = aiter(result.stream(SLOW_CHUNK_BYTES))
            data = await read_part(location, last - first, chunks, self._slow_s)
        except (BaseError, OSError) as error:
            if start < 0 and is_empty(error):
                return Part(b"", 0, location.etag, location.version_id)
            raise self._meant(error, location) from None
        except Exception as error:
            raise settings_of_panic(error, location) from None
        meta = result.meta
        check_pin(location, meta["e_tag"])
        part = Part(data, meta["size"], pin_of(meta["e_tag"]), pin_of(meta["version"]))
        return check_part(part, location, start, stop)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self._exact.list(bucket, pattern, store)

    async def aclose(self) -> None:
        await self._exact.aclose()


class ObstoreObjects(ByObstore):
    """`ByObstore` for S3, and for other servers with S3's interface."""

    def __init__(
        self,
        settings: config.Access,
        *,
        section: str = DEFAULT,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        super().__init__(
            lambda: s3_buckets(settings, section, read_timeout_s),
            S3fsObjects(settings, section=section, read_timeout_s=read_timeout_s),
            translated,
            read_timeout_s,
            has_regions=settings.endpoint_url is None,
        )


class ObstoreBody(ResumedBody):
    def __init__(
        self,
        store: "ObjectStore",
        location: Location,
        result: "GetResult",
        meaning: Callable[[Exception, Location], PenstockError],
        read_timeout_s: float,
    ) -> None:
        meta = result.meta
        super().__init__(location, meta["size"], meta["e_tag"], meta["version"], read_timeout_s)
        self._store = store
        self._meaning = meaning
        self._result: GetResult | None = result
        self._coding = result.attributes.get("Content-Encoding")

    async def _read_from(self, offset: int, is_slow: bool) -> AsyncGenerator[bytes]:
        try:
            first, self._result = self._result, None
            result = first or await self._reopen(offset)
            # The body of a part may be longer than its range, so it is not read at once.
            if first is not None and self.size <= WHOLE_BYTES and not is_slow:
                yield bytes(await result.bytes_async())
            else:
                async for chunk in result.stream(SLOW_CHUNK_BYTES if is_slow else CHUNK_BYTES):
                    yield chunk
        except (BaseError, OSError) as error:
            raise self._meaning(error, self._location) from None

    async def _reopen(self, offset: int) -> "GetResult":
        options: GetOptions = {"range": {"offset": offset}}
        self._check_pinned()
        if self.etag is not None:
            options["if_match"] = self.etag
        if self.version_id is not None:
            options["version"] = self.version_id
        result = await obstore.get_async(self._store, self._location.key, options=options)
        etags = self.etag, result.meta["e_tag"]
        check_rest(self._location, (offset, self.size), result.range, etags)
        check_coding(self._location, self._coding, result.attributes.get("Content-Encoding"))
        return result

    def _drop(self) -> None:
        self._result = None


def _pinned(location: Location) -> "GetOptions":
    options: GetOptions = {}
    if location.version_id is not None:
        options["version"] = location.version_id
    if location.etag is not None and wants_etag(location):
        options["if_match"] = quoted(location.etag)
    return options
