"""Reads each small object by one signed GET of our own, and leaves all else to the client behind.
The signature is AWS's Version 4 ("Authenticating Requests", Amazon S3 API reference).

Rule: only a plain 200 with a length up to `WHOLE_BYTES` is used, and a refusal that says that there
is no such key or bucket: a message may name 35,000 of them. After any other answer or error, and
for any odd key, the client behind asks again and decides what the answer means: one client handles
all errors, retries, streams and listings. The reason is CPU: for 4 KiB 0.06 ms against 0.3 by
obstore.

Configured credentials come first, else AWS's own chain, asked in a thread, because it may send a
request to a token service; its answer is used for `GOOD_FOR_S`. What many signatures share is
computed once: the signing key a day, the signed header lines a second.
"""

import asyncio
import hashlib
import hmac
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock import config
from penstock.adapters.http.answer_reader import (
    OK,
    Answer,
    AnswerReader,
    TooLong,
    Unusable,
    wanting,
)
from penstock.adapters.http.certificates import trusting
from penstock.adapters.http.connections import Connection, Host
from penstock.adapters.s3.buckets import DEFAULT_REGION, address_of, check_credentials
from penstock.adapters.stores.names import check_bucket, is_bucket, is_for_botocore, is_odd
from penstock.adapters.stores.refusals import RENEW_S, no_credentials, refusal
from penstock.adapters.stores.transfer import (
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    SLOW_SILENCES,
    WHOLE_BYTES,
    WholeBody,
    check_pin,
    pin_of,
    quoted,
    wants_etag,
)
from penstock.core.routing.store_choice import DEFAULT
from penstock.errors import LockedOut
from penstock.ports import Listed, Location, ObjectBody, Objects, Part

# The most hosts that are kept. A bound is needed: each bucket may have its own host, and bucket
# names come from messages.
MAX_SITES: Final = 128

# Credentials from the chain are used for this long before the chain is asked again. A minute is
# safe: credentials from botocore last ten minutes at least.
GOOD_FOR_S: Final = 60.0
# After the chain was asked, it is not asked again for this long, even if it had no credentials.
PAUSE_S: Final = 1.0
# Sent instead of the body's hash, because a GET has no body.
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
# The statuses with which stores refuse credentials (AWS says ExpiredToken with 400).
_DENIED: Final = (400, 401, 403)
_NOT_THERE: Final = (400, 404)
_MISSING: Final = re.compile(rb"<Code>(NoSuchKey|NoSuchBucket|InvalidBucketName)</Code>")
# More than a store says about a missing object.
_COMPLAINT_BYTES: Final = 4 << 10
_FIELDS: Final = wanting("content-encoding", "etag", "x-amz-version-id")


class DirectObjects:
    """Implements the port `Objects`, for stores over http(s) that take S3's signature. Every GET is
    signed.
    """

    def __init__(
        self,
        behind: Objects,
        settings: config.Access,
        *,
        section: str = DEFAULT,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._behind = behind
        self._settings = settings
        self._credentials = CredentialSource(settings, section)
        self._read_timeout_s = read_timeout_s
        self._secure = trusting(settings.ssl_cafile, f"{section}.ssl_cafile")
        # One site for each host, so that all buckets of a host share its connections.
        self._sites: dict[str, _Site] = {}
        self._site_of = lru_cache(MAX_SITES)(self._make_site)

    async def open(self, location: Location) -> ObjectBody:
        asked = await self._ask(location)
        if asked is not None and (whole := _whole(asked.answer)) is not None:
            check_pin(location, whole.etag)
            return whole
        if asked is not None and (code := _missing(asked.answer)) is not None:
            raise refusal(location, asked.answer.status, code)
        try:
            body = await self._behind.open(location)
        except LockedOut:
            self._credentials.look_again()
            raise
        if asked is not None and asked.is_locked_out:
            # The store refused our credentials and let the client behind in, so that client has
            # newer ones.
            self._credentials.look_again()
        return body

    async def part(self, location: Location, start: int, stop: int | None = None) -> Part:
        return await self._behind.part(location, start, stop)

    def list(self, bucket: str, pattern: str, store: str = DEFAULT) -> AsyncIterator[Listed]:
        return self._behind.list(bucket, pattern, store)

    async def aclose(self) -> None:
        for site in self._sites.values():
            site.close()
        await self._behind.aclose()

    async def _ask(self, location: Location) -> "_AnsweredGet | None":
        """Returns the answer to our own GET. None: no answer came; or no GET was sent, because the
        key is odd, the bucket is none of the plain ones, or there are no credentials.
        """
        site_and_prefix = self._site_of(location.bucket)
        if site_and_prefix is None:
            if not is_for_botocore(location.bucket):
                check_bucket(location)
            return None
        if is_odd(location.key):
            return None
        credentials = self._credentials.at_hand or await self._credentials.ask()
        if credentials is None:
            return None
        site, prefix = site_and_prefix
        path = quote(f"{prefix}/{location.key}", safe="/-._~")
        query = f"versionId={quote(location.version_id, safe='')}" if location.version_id else ""
        pin = b""
        if location.etag is not None and wants_etag(location):
            pin = b"If-Match: %b\r\n" % quoted(location.etag).encode()
        try:
            return await site.ask(credentials, path, query, pin)
        except (OSError, Unusable, TooLong):
            return None

    def _make_site(self, bucket: str) -> "tuple[_Site, str] | None":
        """Returns the site of the bucket's host, and the path before the bucket's keys. None: it
        has no plain name.
        """
        if is_for_botocore(bucket) or not is_bucket(bucket):
            return None
        host_url, prefix = address_of(self._settings, self._credentials.region, bucket)
        site = self._sites.get(host_url)
        if site is None:
            if len(self._sites) >= MAX_SITES:
                self._sites.pop(next(iter(self._sites))).close()
            site = self._sites[host_url] = _Site(
                host_url, self._credentials.region, self._secure, self._read_timeout_s
            )
        return site, prefix


class Credentials(NamedTuple):
    """`token`: the session token of temporary credentials; None for all others."""

    key: str
    secret: str
    token: str | None = None


class CredentialSource:
    """Finds and keeps credentials, for any number of tasks. It reads `time.monotonic` instead of
    the loop's clock, because each call of `get_running_loop` costs a `getpid` in Python 3.11.
    """

    def __init__(self, settings: config.Access, section: str) -> None:
        check_credentials(settings, section)
        self._settings = settings
        self._fixed: Credentials | None = None
        self._known: Credentials | None = None
        self._source: Any = None
        self._asked_s = -GOOD_FOR_S
        self._next_look_s = 0.0
        try:
            session = self._session()
            region: str | None = session.get_config_variable("region")
            self.region = settings.region or region or DEFAULT_REGION
            if settings.key is not None and settings.secret is not None:
                self._fixed = Credentials(settings.key, settings.secret, settings.token)
            else:
                self._source = session.get_credentials()
        except BotoCoreError as error:
            raise no_credentials(error, section) from None

    def _session(self) -> Session:
        return Session(profile=self._settings.profile)

    @property
    def at_hand(self) -> Credentials | None:
        """The credentials. None: the chain must be asked first. As long as the credentials do not
        change, this returns the same object, so that callers can compare by identity.
        """
        if self._fixed is not None:
            return self._fixed
        age_s = time.monotonic() - self._asked_s
        return self._known if age_s < GOOD_FOR_S else None

    async def ask(self) -> Credentials | None:
        """Ask the chain. While one task asks, other tasks get the credentials of the last answer.
        Returns None if there are no credentials. The caller then lets the next client ask the
        store, and that client's error says what is wrong.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s < PAUSE_S:
            return self._known
        self._asked_s = now_s
        try:
            credentials = await asyncio.to_thread(self._look)
        except BotoCoreError:
            return self._known
        if credentials != self._known:
            self._known = credentials
        return self._known

    def _look(self) -> Credentials | None:
        # The source is kept in a local name, because `look_again` may remove `_source` while this
        # thread uses it.
        source = self._source or self._session().get_credentials()
        self._source = source
        if source is None:
            return None
        frozen = source.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def look_again(self) -> None:
        """Call this when the store has refused the credentials. The next request then asks the
        chain again, because a credentials file may have been renewed. This happens at most once in
        `RENEW_S`.
        """
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + RENEW_S
            self._source = self._known = None
            self._asked_s = now_s - GOOD_FOR_S


def canonical_headers(headers: Mapping[str, str], payload: str) -> str:
    """The part of a canonical request that follows the query. `headers`: the names must be in lower
    case and sorted; `SignedHeaders` must list them in the same order.
    """
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{lines}\n{';'.join(headers)}\n{payload}"


def canonical_request(method: str, path: str, query: str, headers: str) -> str:
    """The text that is signed. `path` and `query` must be encoded, and `query` must be sorted by
    name; `headers` comes from `canonical_headers`.
    """
    return f"{method}\n{path}\n{query}\n{headers}"


def day_key(secret: str, scope: str) -> hmac.HMAC:
    """The signing key of a scope (`YYYYMMDD/region/s3/aws4_request`). It is an `hmac` object,
    because copying such an object costs half as much as making one from the key's bytes.
    """
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, digestmod="sha256")


def signature(key: hmac.HMAC, time: str, scope: str, request: str) -> str:
    """The signature as hexadecimal digits. `time`: `YYYYMMDDTHHMMSSZ`; `request`: a result of
    `canonical_request`.
    """
    digest = hashlib.sha256(request.encode()).hexdigest()
    signed = key.copy()
    signed.update(f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}".encode())
    return signed.hexdigest()


def scope_of(time: str, region: str) -> str:
    return f"{time[:8]}/{region}/s3/aws4_request"


class Signer:
    """Signs GETs to one host with one set of credentials. `now`: a function that returns the
    seconds since 1970.
    """

    def __init__(
        self,
        host: str,
        region: str,
        credentials: Credentials,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._region = region
        self._credentials = credentials
        self._now = now
        self._second = -1
        self._time = self._scope = ""
        self._key = hmac.new(b"", digestmod="sha256")
        self._headers = {"host": host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": ""}
        if credentials.token is not None:
            self._headers["x-amz-security-token"] = credentials.token
        # `_canonical`: what is signed after the query. `_head`: the request's head up to the
        # signature. Both are renewed each second.
        self._canonical = self._head = ""

    def get(self, path: str, query: str, more: bytes = b"") -> bytes:
        """Returns the request, signed for the present second. `more`: further header lines, which
        are not signed.
        """
        second = int(self._now())
        if second != self._second:
            self._begin(second)
        request = canonical_request("GET", path, query, self._canonical)
        signed = signature(self._key, self._time, self._scope, request)
        target = f"{path}?{query}" if query else path
        head = f"GET {target} HTTP/1.1\r\n{self._head}{signed}\r\n"
        return b"%b%b\r\n" % (head.encode(), more)

    def _begin(self, second: int) -> None:
        self._second = second
        self._time = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
        self._headers["x-amz-date"] = self._time
        scope = scope_of(self._time, self._region)
        if scope != self._scope:
            self._scope, self._key = scope, day_key(self._credentials.secret, scope)
        self._canonical = canonical_headers(self._headers, UNSIGNED)
        self._head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items()) + (
            f"authorization: AWS4-HMAC-SHA256 Credential={self._credentials.key}/{scope}, "
            f"SignedHeaders={';'.join(self._headers)}, Signature="
        )


class _AnsweredGet(NamedTuple):
    """The answer to a GET. `is_locked_out`: True if the host refused credentials that it had taken
    before, because such credentials have expired. If the host never took them, the refusal has
    another reason, such as the wrong region.
    """

    answer: Answer
    is_locked_out: bool


class _Site:
    """One host: keeps connections to it, and signs requests to it."""

    def __init__(
        self, host_url: str, region: str, secure: ssl.SSLContext, read_timeout_s: float
    ) -> None:
        parts = urlsplit(host_url)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        self._netloc = parts.netloc
        self._region = region
        self._host = Host(parts.hostname or "", port, secure if is_secure else None)
        self._silence_s = read_timeout_s
        self._credentials: Credentials | None = None
        self._sign: Signer | None = None
        # The last credentials that this host has accepted.
        self._taken: Credentials | None = None

    async def ask(
        self, credentials: Credentials, path: str, query: str, more: bytes
    ) -> _AnsweredGet:
        """Raises `OSError`, `Unusable`, `TooLong`."""
        if self._sign is None or credentials is not self._credentials:
            self._sign = Signer(self._netloc, self._region, credentials)
            self._credentials = credentials
        request = self._sign.get(path, query, more)
        answer = await self._over_used(request) or await self._over_new(request)
        if answer.status == OK:
            self._taken = credentials
        is_locked_out = answer.status in _DENIED and credentials is self._taken
        return _AnsweredGet(answer, is_locked_out)

    async def _over_used(self, request: bytes) -> Answer | None:
        """None: there is no connection to be used again, or it brought nothing: the store has
        closed it, or it was forgotten on its way.
        """
        connection = self._host.take()
        if connection is None:
            return None
        reader = _reader()
        try:
            silence_s = min(self._host.silence_s, self._silence_s)
            return await self._over(connection, request, reader, silence_s)
        except (ConnectionError, TimeoutError):
            self._host.condemn(connection)
            if reader.has_begun:
                raise
            return None

    async def _over_new(self, request: bytes) -> Answer:
        connection = await self._host.connect(CONNECT_TIMEOUT_S)
        return await self._over(connection, request, _reader(), self._silence_s)

    async def _over(
        self, connection: Connection, request: bytes, reader: AnswerReader, silence_s: float
    ) -> Answer:
        answer = await connection.ask(
            request,
            reader,
            silence_s=silence_s,
            # A slower transfer is left to the client behind, which reads it in small chunks.
            most_s=SLOW_SILENCES * self._silence_s,
        )
        self._host.give(connection)
        return answer

    def close(self) -> None:
        self._host.close()


def _reader() -> AnswerReader:
    return AnswerReader(_FIELDS, WHOLE_BYTES, _COMPLAINT_BYTES, trusts_refusals=True)


def _whole(answer: Answer) -> WholeBody | None:
    """The object. None: the answer is not a plain 200, or one of its fields has several values."""
    fields = answer.fields
    etag, version_id = fields.get(b"etag", b""), fields.get(b"x-amz-version-id", b"")
    is_plain = b"content-length" in fields and b"content-encoding" not in fields
    if answer.status != OK or not is_plain or b"\n" in etag + version_id:
        return None
    return WholeBody(
        answer.body, pin_of(etag.decode("latin-1")), pin_of(version_id.decode("latin-1"))
    )


def _missing(answer: Answer) -> str | None:
    """The store's word for what is not there. None: it did not say so."""
    said = _MISSING.search(answer.body) if answer.status in _NOT_THERE else None
    return None if said is None else said[1].decode()
