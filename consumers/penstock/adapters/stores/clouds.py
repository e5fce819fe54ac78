"""Objects of Google Cloud Storage and of Azure, through obstore, and the hosts that may be asked.

Rule: credentials come from the configuration, else from each cloud's own chain. Requests go to the
store's own host and, without configured credentials, to token services; no other host is asked,
even if a redirect leads to it. A key that obstore would rewrite is refused, because no other client
could read the object.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore

from penstock import config
from penstock.adapters.s3.buckets import Buckets, client_options, confined
from penstock.adapters.s3.obstore_client import ByObstore, cloud_translated
from penstock.adapters.stores.names import LISTED_AT_ONCE, Glob, check_bucket, is_odd, name
from penstock.adapters.stores.transfer import READ_TIMEOUT_S, WholeBody, quoted
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import PenstockError, Poison, Transient, usage
from penstock.ports import Listed, Location, ObjectBody, Part

if TYPE_CHECKING:
    from obstore.store import RetryConfig


class CloudObjects(ByObstore):
    """Implements the port `Objects` over `gs://` and `az://`."""

    def __init__(
        self,
        settings: config.Store,
        scheme: str,
        *,
        section: str,
    ) -> None:
        def reach() -> Buckets:
            return cloud_buckets(settings, scheme, section)

        self._takes_suffixes = scheme == "gs"
        super().__init__(reach, _Exact(reach()), cloud_translated, READ_TIMEOUT_S)

    async def open(self, location: Location) -> ObjectBody:
        body = await super().open(location)
        _check_version(location, body.version_id)
        return body

    async def _part(self, location: Location, start: int, stop: int | None) -> Part:
        """Azure cannot be asked for the last bytes of an object. So Azure is asked for the size,
        and then for these bytes of the same version.
        """
        if start >= 0 or self._takes_suffixes:
            part = await super()._part(location, start, stop)
            _check_version(location, part.version_id)
            return part
        body = await self.open(location)
        await body.aclose()
        pin = location._replace(version_id=body.version_id, etag=body.etag)
        if not body.size:
            return Part(b"", 0, body.etag, body.version_id)
        return await super()._part(pin, max(0, body.size + start), stop)


def cloud_buckets(
    settings: config.Store,
    scheme: str,
    section: str,
    read_timeout_s: float = READ_TIMEOUT_S,
    retries: "RetryConfig | None" = None,
) -> Buckets:
    """Returns the function that opens a bucket of `gs`, or a container of `az`. `retries` is given
    only for writes, because the caller retries reads.
    """
    maker: Any = GCSStore if scheme == "gs" else AzureStore
    options = _google(settings) if scheme == "gs" else _azure(settings, section)
    of_client = client_options(settings, section, read_timeout_s)
    of_client = confined(of_client, hosts_of(settings, scheme))

    def bucket(named: str) -> Any:
        try:
            return maker(
                named,
                config=options,
                client_options=of_client,
                retry_config=retries or {"max_retries": 0},
            )
        except BaseError as error:
            raise usage(f"{section}: {error}") from None

    return bucket


def _google(settings: config.Store) -> dict[str, Any]:
    return _given(
        skip_signature=settings.anon,
        base_url=settings.endpoint_url,
        application_credentials=settings.key_file,
        bearer_token=settings.token,
    )


def _azure(settings: config.Store, section: str) -> dict[str, Any]:
    if settings.secret and not settings.account:
        raise usage(f"{section}.secret is a key of {section}.account")
    return _given(
        skip_signature=settings.anon,
        account_name=settings.account,
        endpoint=settings.endpoint_url,
        account_key=settings.secret,
        sas_key=settings.token,
    )


def _given(**options: Any) -> dict[str, Any]:
    """Leave out options that are not set, because obstore then finds their values by itself."""
    return {name: value for name, value in options.items() if value not in (None, "")}


class _Exact:
    """The `exact` client of `ByObstore`: it refuses odd keys, opens empty objects, and lists."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets

    async def open(self, location: Location) -> ObjectBody:
        if is_odd(location.key):
            raise _odd(location)
        try:
            meta = await obstore.head_async(self._buckets(location.bucket), location.key)
        except (BaseError, OSError) as error:
            raise cloud_translated(error, location) from None
        if meta["size"]:
            raise Transient(f"{name(location)}: it was empty a moment ago, and is no longer")
        return WholeBody(b"", meta["e_tag"], meta["version"])

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        raise _odd(location)

    async def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        location = Location(bucket, pattern, store=store)
        check_bucket(location)
        glob = Glob.of(pattern)
        # obstore lists whole folders only.
        folder = glob.prefix.rpartition("/")[0]
        try:
            pages = obstore.list(self._buckets(bucket), folder or None, chunk_size=LISTED_AT_ONCE)
            async for page in pages:
                for entry in page:
                    if glob.matches(entry["path"]):
                        etag = entry["e_tag"]
                        pin = None if etag is None else quoted(etag)
                        place = Location(bucket, entry["path"], None, pin, store)
                        yield Listed(place, entry["size"])
        except (BaseError, OSError) as error:
            raise cloud_translated(error, location) from None

    async def aclose(self) -> None:
        """Does nothing: nothing is held open between calls."""


def _check_version(location: Location, version_id: str | None) -> None:
    """Refuse the answer if it is another version than the pinned one: an account without versioning
    ignores the version in a request.
    """
    if location.version_id not in (None, version_id):
        raise Poison("changed", f"{name(location)}: there is no version {location.version_id}")


def _odd(location: Location) -> PenstockError:
    return Poison(
        "not_found",
        f"{name(location)}: keys that are empty or have an empty, . or .. segment, or a control "
        "character, are read from S3 only; rename the object",
    )


_GOOGLE: Final = "https://storage.googleapis.com"
_GOOGLE_TOKENS: Final = (
    "https://oauth2.googleapis.com",
    "https://www.googleapis.com",
    "https://accounts.google.com",
    "https://sts.googleapis.com",
    "https://iamcredentials.googleapis.com",
)
_AZURE: Final = "https://blob.core.windows.net"
_AZURE_TOKENS: Final = (
    "https://login.microsoftonline.com",
    "https://login.microsoftonline.us",
    "https://login.partner.microsoftonline.cn",
)
# The metadata service of the cloud that the machine runs in.
_INSTANCE: Final = ("http://169.254.169.254", "http://metadata.google.internal")
# Environment variables that name another token service for a cloud's own chain. The value is a host
# or an address.
_ELSEWHERE: Final = (
    "GCE_METADATA_HOST",
    "GCE_METADATA_ROOT",
    "GCE_METADATA_IP",
    "METADATA_HOST",
    "METADATA_IP",
    "AZURE_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)


class _KeyFile(msgspec.Struct):
    token_uri: str | None = None


def hosts_of(settings: config.Store, scheme: str) -> list[str]:
    """The addresses of the allowed hosts; the store's own address comes first."""
    is_google = scheme == "gs"
    own = settings.endpoint_url or (_GOOGLE if is_google else _AZURE)
    if settings.anon or settings.token or settings.secret:
        return [own]
    tokens = [*(_GOOGLE_TOKENS if is_google else _AZURE_TOKENS)]
    file = settings.key_file or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if is_google and file:
        tokens += _named_in(Path(file))
    if not settings.key_file:
        tokens += _INSTANCE
        named = filter(None, map(os.environ.get, _ELSEWHERE))
        tokens += [address if "://" in address else f"http://{address}" for address in named]
    return [own, *tokens]


def _named_in(file: Path) -> list[str]:
    """The token service that a key file names. The list is empty for a bad file, because obstore
    reports bad files.
    """
    try:
        keys = msgspec.json.decode(file.read_bytes(), type=_KeyFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [keys.token_uri] if keys.token_uri else []
