"""AWS Signature Version 4, as far as a request without a body needs it.

Rule: pure functions of the time they are given, held to the examples that AWS publishes. `Signer`
adds what makes a GET cheap: the day's key is derived once a day, the time is written once a second.
Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

# Over TLS or on a trusted network the body needs no hash, and a GET has none.
UNSIGNED = "UNSIGNED-PAYLOAD"


class Credentials(NamedTuple):
    """`token` comes with temporary credentials only."""

    key: str
    secret: str
    token: str | None = None


def canonical_request(
    method: str, path: str, query: str, headers: Mapping[str, str], payload: str
) -> str:
    """What is signed. `path` and `query` are encoded already, `query` sorted by name; the names of
    `headers` are in lower case and in order, and so stand in `SignedHeaders`.
    """
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{method}\n{path}\n{query}\n{lines}\n{';'.join(headers)}\n{payload}"


def day_key(secret: str, scope: str) -> bytes:
    """The signing key of a scope, `YYYYMMDD/region/s3/aws4_request`."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signature(key: bytes, time: str, scope: str, request: str) -> str:
    """`time` as `YYYYMMDDTHHMMSSZ`; `request` from `canonical_request`. In hexadecimal digits."""
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode(), "sha256").hex()


def scope_of(time: str, region: str) -> str:
    return f"{time[:8]}/{region}/s3/aws4_request"


class Signer:
    """Signs GETs to one host with one set of credentials."""

    def __init__(
        self,
        host: str,
        region: str,
        credentials: Credentials,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._region = region
        self._credentials = credentials
        self._now = now
        self._second = 0
        self._time = self._scope = ""
        self._key = b""
        self._headers = {"host": host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": ""}
        if credentials.token is not None:
            self._headers["x-amz-security-token"] = credentials.token

    def get(self, path: str, query: str, more: bytes = b"") -> bytes:
        """The request, signed for this second. `more`: further header lines, left unsigned."""
        self._look_at_the_time()
        request = canonical_request("GET", path, query, self._headers, UNSIGNED)
        signed = signature(self._key, self._time, self._scope, request)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        return (
            f"GET {path}{'?' if query else ''}{query} HTTP/1.1\r\n{lines}"
            f"authorization: AWS4-HMAC-SHA256 Credential={self._credentials.key}/{self._scope}, "
            f"SignedHeaders={';'.join(self._headers)}, Signature={signed}\r\n"
        ).encode() + b"%b\r\n" % more

    def _look_at_the_time(self) -> None:
        now = self._now()
        second = int(now.timestamp())
        if second == self._second:
            return
        self._second = second
        self._time = self._headers["x-amz-date"] = now.strftime("%Y%m%dT%H%M%SZ")
        scope = scope_of(self._time, self._region)
        if scope != self._scope:
            self._scope, self._key = scope, day_key(self._credentials.secret, scope)
