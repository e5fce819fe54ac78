"""Finds the credentials for GETs from S3, and makes signatures (AWS Signature Version 4,
"Authenticating Requests", Amazon S3 API reference) for requests without a body.

Rule: configured credentials first, else AWS's own chain, asked in a thread, because it may send a
request to a token service; its answer is used for `GOOD_FOR_S`. What many signatures share is
computed once: the signing key a day, the signed header lines a second.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock import config
from penstock.adapters.stores.refusals import RENEW_S, no_credentials
from penstock.errors import usage

DEFAULT_REGION: Final = "us-east-1"
# Credentials from the chain are used for this long before the chain is asked again. A minute is
# safe: credentials from botocore last ten minutes at least.
GOOD_FOR_S: Final = 60.0
# After the chain was asked, it is not asked again for this long, even if it had no credentials.
PAUSE_S: Final = 1.0
# Sent instead of the body's hash, because a GET has no body.
UNSIGNED: Final = "UNSIGNED-PAYLOAD"


class Credentials(NamedTuple):
    """`token`: the session token of temporary credentials; None for all others."""

    key: str
    secret: str
    token: str | None = None


def check_credentials(settings: config.Access, section: str) -> None:
    if (settings.key is None) != (settings.secret is None):
        raise usage(f"{section}.key and {section}.secret go together: set both or neither")
    if settings.token is not None and settings.key is None:
        raise usage(f"{section}.token goes together with {section}.key and {section}.secret")


class CredentialSource:
    """Finds and keeps credentials, for any number of tasks. It reads `time.monotonic` instead of
    the loop's clock, because each call of `get_running_loop` costs a `getpid` in Python 3.11.
    """

    def __init__(self, settings: config.Access, section: str) -> None:
        check_credentials(settings, section)
        self._settings = settings
        self._fixed: Credentials | None = None
        self._found: Credentials | None = None
        self._source: Any = None
        self._asked_s = -GOOD_FOR_S
        self._next_look_s = 0.0
        try:
            session = self._session()
            found: str | None = session.get_config_variable("region")
            self.region = settings.region or found or DEFAULT_REGION
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
        return self._found if age_s < GOOD_FOR_S else None

    async def ask(self) -> Credentials | None:
        """Ask the chain. While one task asks, other tasks get the credentials of the last answer.
        Returns None if there are no credentials. The caller then lets the next client ask the
        store, and that client's error says what is wrong.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s < PAUSE_S:
            return self._found
        self._asked_s = now_s
        try:
            found = await asyncio.to_thread(self._look)
        except BotoCoreError:
            return self._found
        if found != self._found:
            self._found = found
        return self._found

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
            self._source = self._found = None
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
