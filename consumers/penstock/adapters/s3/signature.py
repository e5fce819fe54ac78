"""The signature of a GET for S3: AWS Signature Version 4, for requests without a body.

Rule: pure, and tested with the examples that AWS publishes. What many requests share is computed
once: the signing key once a day, the signed header lines once a second. Owner: `direct_get`.
Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from penstock.adapters.s3.credentials import Credentials

# Sent in the place of the body's hash, because a GET has no body.
UNSIGNED = "UNSIGNED-PAYLOAD"


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
    """The signing key of a scope (`YYYYMMDD/region/s3/aws4_request`), as an `hmac` object: to copy
    such an object costs half as much as to make one from the key's bytes.
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
    """Signs GETs to one host with one set of credentials. `now` gives the seconds since 1970."""

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
        # Both are renewed each second: what is signed after the query, and the request's head up to
        # the signature.
        self._canonical = self._head = ""

    def get(self, path: str, query: str, more: bytes = b"") -> bytes:
        """The request, signed with the present second. `more`: header lines that are not signed."""
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
