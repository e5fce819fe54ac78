"""Objects through obstore, a library in Rust. It is the default, because a small object costs a
third of the CPU that aiobotocore needs.

Rule: an object is read by one GET. Some things are left to another client, `exact`: keys that
obstore's path type would rewrite; empty objects; listings; access points and directory buckets; and
AWS buckets in another region, which `exact` can find. A body that is cut off is resumed here; the
caller retries failed requests. `ByObstore` is for any cloud, `ObstoreObjects` for S3. Each client
owns one obstore store per bucket.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from penstock import config
from penstock.adapters.s3.buckets import Buckets, s3_buckets
from penstock.adapters.s3.kept_stores import MAX_STORES, KeptStores
from penstock.adapters.s3.s3fs_client import S3fsObjects
from penstock.adapters.stores.names import check_bucket, is_for_botocore, pin_of, quoted, wants_etag
from penstock.adapters.stores.obstore_errors import is_empty, settings_of_panic, translated
from penstock.adapters.stores.refusals import Elsewhere, Renewal
from penstock.adapters.stores.transfer import (
    CHUNK_BYTES,
    READ_TIMEOUT_S,
    SLOW_CHUNK_BYTES,
    WHOLE_BYTES,
    ResumedBody,
    check_part,
    check_pin,
    check_rest,
    repeated,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import Fatal, PenstockError
from penstock.ports import Body, Listed, Location, Objects, Part

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore


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
        self._stores = KeptStores(reach())

    async def open(self, location: Location) -> Body:
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
            self._stores = KeptStores(self._reach())

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
            data = bytes(await result.bytes_async())
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

    async def _read_from(self, offset: int, is_slow: bool) -> AsyncGenerator[bytes]:
        try:
            result = self._result or await self._reopen(offset)
            self._result = None
            if self.size - offset <= WHOLE_BYTES and not is_slow:
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
