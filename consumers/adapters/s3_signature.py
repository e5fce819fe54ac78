"""AWS Signature Version 4, as far as a GET needs it.

Rule: the payload is not signed, a GET has none. No I/O; the system's clock is read once a request.
"""

import hashlib
import hmac
from datetime import UTC, datetime


class Signer:
    """AWS Signature Version 4 of GETs without a body; the day's key is derived once a day."""

    def __init__(self, host: str, region: str, key: str, secret: str) -> None:
        self._host = host
        self._region = region
        self._key = key
        self._secret = secret
        self._second = 0
        self._time = ""
        self._scope = ""
        self._day_key = hmac.new(b"", digestmod=hashlib.sha256)

    def get(self, path: str, query: str, more: bytes = b"") -> bytes:
        """The request, signed for this second. `more`: further header lines, left unsigned."""
        self._now()
        headers = (
            f"host:{self._host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{self._time}\n"
        )
        names = "host;x-amz-content-sha256;x-amz-date"
        canonical = f"GET\n{path}\n{query}\n{headers}\n{names}\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        signature = self._day_key.copy()
        signature.update(f"AWS4-HMAC-SHA256\n{self._time}\n{self._scope}\n{digest}".encode())
        return (
            f"GET {path}{'?' if query else ''}{query} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nx-amz-date: {self._time}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={self._key}/{self._scope}, "
            f"SignedHeaders={names}, Signature={signature.hexdigest()}\r\n"
        ).encode() + b"%b\r\n" % more

    def _now(self) -> None:
        now = datetime.now(UTC)
        second = int(now.timestamp())
        if second == self._second:
            return
        self._second = second
        self._time = now.strftime("%Y%m%dT%H%M%SZ")
        scope = f"{self._time[:8]}/{self._region}/s3/aws4_request"
        if scope != self._scope:
            self._scope = scope
            key = f"AWS4{self._secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day_key = hmac.new(key, digestmod=hashlib.sha256)
