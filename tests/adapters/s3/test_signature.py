"""AWS's published examples: "Signature Calculations for the Authorization Header", Amazon S3 API
reference; and what a signed GET looks like.
"""

import hashlib
import time
from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from penstock.adapters.s3.direct_get import (
    UNSIGNED,
    Credentials,
    Signer,
    canonical_headers,
    canonical_request,
    day_key,
    scope_of,
    signature,
)

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TIME = "20130524T000000Z"
EMPTY = hashlib.sha256(b"").hexdigest()
HOST = "examplebucket.s3.amazonaws.com"
PLAIN = {"host": HOST, "x-amz-content-sha256": EMPTY, "x-amz-date": TIME}
RANGED = {
    "host": HOST, "range": "bytes=0-9", "x-amz-content-sha256": EMPTY, "x-amz-date": TIME,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "query", "headers", "expected"),
    [
        pytest.param(
            "/test.txt", "", RANGED,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            id="GET Object",
        ),
        pytest.param(
            "/", "lifecycle=", PLAIN,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            id="GET Bucket Lifecycle",
        ),
        pytest.param(
            "/", "max-keys=2&prefix=J", PLAIN,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            id="GET Bucket",
        ),
    ],
)  # fmt: skip
def test_published_examples(path: str, query: str, headers: dict[str, str], expected: str) -> None:
    scope = scope_of(TIME, "us-east-1")
    request = canonical_request("GET", path, query, canonical_headers(headers, EMPTY))
    assert signature(day_key(SECRET, scope), TIME, scope, request) == expected


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("query", ["", "versionId=3%2FL4"])
def test_a_get_is_signed_as_botocore_signs_it(token: str | None, query: str) -> None:
    # botocore looks at the clock itself: both are asked within one second.
    now = time.time()
    text = (
        Signer("host:9000", "eu-west-1", Credentials("AKID", SECRET, token), lambda: now)
        .get("/bucket/a%20b%2Bc.csv", query, b"If-Match: x\r\n")
        .decode()
    )
    lines = text.split("\r\n")
    sent = dict(line.split(": ", 1) for line in lines[1:] if line)
    theirs = AWSRequest(
        "GET",
        f"http://host:9000/bucket/a%20b%2Bc.csv{'?' if query else ''}{query}",
        headers={"X-Amz-Content-SHA256": UNSIGNED},
    )
    theirs.context["timestamp"] = sent["x-amz-date"]
    theirs.context["payload_signing_enabled"] = False
    auth = S3SigV4Auth(BotoCredentials("AKID", SECRET, token), "s3", "eu-west-1")
    if token:
        theirs.headers["X-Amz-Security-Token"] = token
    theirs.headers["X-Amz-Date"] = sent["x-amz-date"]
    string = auth.string_to_sign(theirs, auth.canonical_request(theirs))
    assert sent["authorization"].endswith(f"Signature={auth.signature(string, theirs)}")
    assert lines[0] == f"GET /bucket/a%20b%2Bc.csv{'?' if query else ''}{query} HTTP/1.1"
    assert sent["If-Match"] == "x"
    assert sent.get("x-amz-security-token") == token


def test_a_new_day_has_a_new_key() -> None:
    midnight = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    moments = [midnight - 1, midnight]
    both = Signer("h", "r", Credentials("AKID", SECRET), iter(moments).__next__)
    both.get("/b/k", "")
    fresh = Signer("h", "r", Credentials("AKID", SECRET), lambda: moments[1])
    assert both.get("/b/k", "") == fresh.get("/b/k", "")
