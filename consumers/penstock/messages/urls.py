"""Splits an object's URL into the kind of store, the bucket, and the key.

Rule: the text after `bucket/` is the key, taken literally, because keys may hold `?`, `#` and `%`.
Only keys in `https` URLs are percent-encoded.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus

from penstock.messages.reference import SchemaError

S3: Final = "s3"
# The schemes that Hadoop and fsspec use for these clouds.
_SCHEMES: Final = {
    "s3a": S3,
    "s3n": S3,
    "gcs": "gs",
    "abfs": "az",
    "abfss": "az",
    "adl": "az",
    "azure": "az",
    "wasb": "az",
    "wasbs": "az",
}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
# The name of an access point (of S3, of Object Lambda, of Outposts, of several regions) stands in
# the bucket's place and has slashes of its own; they may be colons.
_ACCESS_POINT = re.compile(
    r"arn:[a-z0-9-]+:s3[a-z-]*:[a-z0-9-]*:\d{12}:(?:outpost[/:][^/:]+[/:])?accesspoint[/:][^/:]+"
)
_AZURE_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:blob|dfs)\.[a-z0-9.-]+")


class ObjectUrl(NamedTuple):
    """The parts of a URL. `store`: the kind of store as in a reference, which is a scheme and, if
    the URL names one, an account; None: S3.
    """

    store: str | None
    bucket: str
    key: str


def split_url(url: str) -> ObjectUrl:
    """Split `s3://bucket/key`, `gs://`, `az://`,
    `abfss://container@account.dfs.core.windows.net/key`,
    `https://account.blob.core.windows.net/container/key`, or the URL of another store. An
    unencrypted scheme is refused. Raises `SchemaError`.
    """
    scheme, account, bucket, key = split_place(url)
    if not bucket or not key or scheme == "http":
        raise SchemaError(
            f"url {url[:80]!r} is not of the form s3://bucket/key, nor gs://, az:// or another "
            "store's"
        )
    store = f"{scheme}@{account}" if account else scheme
    return ObjectUrl(None if store == S3 else store, bucket, key)


def is_access_point(bucket: str) -> bool:
    """True for the ARN of an access point, in the place of a bucket's name."""
    return _ACCESS_POINT.fullmatch(bucket) is not None


def decoded_key(key: str, *, is_form: bool = False) -> str:
    """A percent-encoded key as its bytes say. `is_form`: in it `+` is a blank."""
    try:
        return (unquote_plus if is_form else unquote)(key, errors="strict")
    except UnicodeDecodeError:
        raise SchemaError(
            f"the key {key[:80]!r} has bytes that are not UTF-8, so no client can ask for this "
            "object; give it a name in UTF-8"
        ) from None


def split_place(url: str) -> tuple[str, str | None, str, str]:
    """Scheme, account, bucket and key of a URL. Each part may be empty, because the `url` in a
    store's section of the configuration may name only some of them.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or not _SCHEME.fullmatch(scheme):
        raise SchemaError(f"url {url[:80]!r} is not of the form s3://bucket/key")
    scheme = _SCHEMES.get(scheme, scheme)
    if scheme == S3 and (arn := _ACCESS_POINT.match(rest)):
        return S3, None, arn[0], rest[arn.end() :].removeprefix("/")
    bucket, _, key = rest.partition("/")
    if scheme == "https" and (match := _AZURE_HOST.fullmatch(bucket)):
        container, _, key = key.partition("/")
        return "az", match[1], container, decoded_key(key)
    bucket, _, host = bucket.partition("@") if scheme == "az" else (bucket, "", "")
    if "@" in bucket:
        raise SchemaError("credentials in a url would be in every record; configure a store")
    return scheme, host.partition(".")[0] or None, bucket, key
