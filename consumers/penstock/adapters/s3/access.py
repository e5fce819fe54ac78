"""How a bucket of S3 is reached: its address, the credentials, and the signature of a GET.

Rule: configured credentials come first, then those that AWS's own chain finds (environment,
profile, web identity, container, instance). The chain is asked in a thread, since it may send a
request to a token service; its answer is used for `GOOD_FOR_S`. Signing (AWS Signature Version 4,
for requests without a body) is pure, and tested with the examples that AWS publishes. Owner: the
clients of S3.
Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference.
"""

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError
from botocore.session import Session

from penstock import config
from penstock.adapters.stores.names import (
    DEFAULT_REGION,
    RENEW_S,
    check_credentials,
    no_credentials,
)

# A minute is safe: credentials from botocore last ten minutes at least.
GOOD_FOR_S: Final = 60.0
# If no credentials are found, the chain is not asked again for this long.
PAUSE_S: Final = 1.0
# A bucket name that can be the first label of a host, as a certificate for `*.host` covers it.
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
# Stands instead of a hash of the body; a GET has no body.
UNSIGNED = "UNSIGNED-PAYLOAD"


class Credentials(NamedTuple):
    """`token`: only for temporary credentials."""

    key: str
    secret: str
    token: str | None = None


def is_virtual(settings: config.Access, bucket: str) -> bool:
    """True if the bucket is part of the host's name: AWS prefers that, most others cannot."""
    if settings.addressing == "auto":
        return settings.endpoint_url is None and _LABEL.fullmatch(bucket) is not None
    return settings.addressing == "virtual" and _LABEL.fullmatch(bucket) is not None


def address_of(settings: config.Access, region: str, bucket: str) -> tuple[str, str]:
    """Scheme and host, and the path before the keys."""
    end = ".cn" if region.startswith("cn-") else ""
    endpoint = settings.endpoint_url or f"https://s3.{region}.amazonaws.com{end}"
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/")
    netloc = parts.netloc.rpartition("@")[2]
    if is_virtual(settings, bucket):
        return f"{parts.scheme}://{bucket}.{netloc}", path
    return f"{parts.scheme}://{netloc}", f"{path}/{bucket}"


class Keys:
    """Keeps credentials at hand for any number of tasks. It uses `time.monotonic` instead of the
    loop's clock, because `get_running_loop` costs a getpid per call in Python 3.11.
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
        if self._fixed is not None:
            return self._fixed
        age_s = time.monotonic() - self._asked_s
        return self._found if age_s < GOOD_FOR_S else None

    async def ask(self) -> Credentials | None:
        """Ask the chain. None if it has no credentials now: the client behind then says what is
        wrong. While one task asks, the others use those that are known.
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
        if self._source is None:
            self._source = self._session().get_credentials()
        if self._source is None:
            return None
        frozen = self._source.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def look_again(self) -> None:
        """Called when the store refuses the credentials: ask the chain again, as a file may have
        new ones by now; at most every `RENEW_S`.
        """
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + RENEW_S
            self._source = self._found = None
            self._asked_s = now_s - GOOD_FOR_S


def canonical_headers(headers: Mapping[str, str], payload: str) -> str:
    """The part of a canonical request after its query. The names must be in lower case and sorted,
    and `SignedHeaders` must list them in this order.
    """
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{lines}\n{';'.join(headers)}\n{payload}"


def canonical_request(method: str, path: str, query: str, headers: str) -> str:
    """The text that is signed. `path` and `query` must be encoded, `query` sorted by name;
    `headers` comes from `canonical_headers`.
    """
    return f"{method}\n{path}\n{query}\n{headers}"


def day_key(secret: str, scope: str) -> hmac.HMAC:
    """The signing key of a scope (`YYYYMMDD/region/s3/aws4_request`) as an `hmac` object: copying
    one costs half of making it from the key.
    """
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, digestmod="sha256")


def signature(key: hmac.HMAC, time: str, scope: str, request: str) -> str:
    """The signature as hexadecimal digits. `time`: `YYYYMMDDTHHMMSSZ`; `request`: from
    `canonical_request`.
    """
    digest = hashlib.sha256(request.encode()).hexdigest()
    signed = key.copy()
    signed.update(f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}".encode())
    return signed.hexdigest()


def scope_of(time: str, region: str) -> str:
    return f"{time[:8]}/{region}/s3/aws4_request"


class Signer:
    """Signs GETs to one host with one set of credentials. It derives the signing key once a day and
    writes the parts with the time once a second. `now`: gives seconds since 1970.
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
        # Valid for one second: the signed part after the query, and the head up to the signature.
        self._canonical = self._head = ""

    def get(self, path: str, query: str, more: bytes = b"") -> bytes:
        """The request, signed for this second. `more`: further header lines, left unsigned."""
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
