"""Finds the values that may never be printed: secrets, and the credentials in addresses.

Rule: a key of ours is secret if it is marked so; another library's option unless its name is known
to be harmless, nested ones, too.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from penstock.config.marks import Mark, marked

MASK = "********"
# Options of fsspec's packages that say where a store is and how to read it, and never hold
# credentials of their own. Addresses among these options are shown without their credentials.
HARMLESS_OPTIONS: Final = frozenset(
    {
        "account", "account_host", "account_name", "anon", "base_url", "block_size", "bucket",
        "connect_timeout", "default_block_size", "drive_name",
        "encoding", "endpoint", "endpoint_url", "host", "hostname", "location",
        "max_concurrency", "mode", "namespace", "org", "path", "port", "project", "protocol",
        "read_timeout", "ref", "region", "region_name", "repo", "repo_type", "requester_pays",
        "retries", "root", "scheme", "server", "sha", "site_name", "skip_instance_cache",
        "ssl_verify", "target_protocol", "temppath", "timeout", "url", "use_ssl", "user",
        "username", "verify", "workspace",
    }
)  # fmt: skip
# The pattern of a part of a secret. A secret such as `AccountKey=...;` or `Bearer ...` has several
# parts, and a library may print one of them alone.
_PART: Final = re.compile(r"[^\s;=&]{8,}=*")


def secret_text(path: str | Path) -> str:
    """The text of a file that holds a secret. Raises `OSError` or `ValueError`, which show nothing
    of it: the repr of a `UnicodeDecodeError` has the whole file.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def without(secrets: Iterable[str], text: str) -> str:
    """The text with the secrets masked. One may be a part of another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def mask(section: type[Struct], keys: dict[str, Any]) -> None:
    """Mask the secrets of a section for printing, in its own dictionary."""
    for holder, key, mark in marked(section, keys):
        holder[key] = _masked(mark, holder[key])


def secrets(section: type[Struct], keys: dict[str, Any]) -> set[str]:
    """The secrets among the values of a section, and the credentials in its addresses."""
    values = ((mark, holder[key]) for holder, key, mark in marked(section, keys))
    return {secret for mark, value in values for secret in _secrets_of(mark, value) if secret}


def _masked(mark: Mark, value: Any) -> Any:
    if mark == "file":
        return value
    if mark == "options":
        return shown_options(value)
    if isinstance(value, list):
        return [_masked(mark, item) for item in value]
    if isinstance(value, Mapping):
        return {name: _masked(mark, item) for name, item in value.items()}
    return MASK if mark == "secret" else shown_url(value)


def _secrets_of(mark: Mark, value: Any) -> Iterator[str]:
    if mark == "file":
        return
    if mark == "options":
        yield from option_secrets(value)
    elif isinstance(value, list | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _secrets_of(mark, item)
    elif mark == "secret":
        yield value
    else:
        yield from url_secrets(value)


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of another library for printing, with secrets masked."""
    return {name: _shown(name, value) for name, value in options.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return shown_options(value)
    if isinstance(value, list):
        return [_shown(name, item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if name.lower() not in HARMLESS_OPTIONS:
        return MASK
    return shown_url(value) if isinstance(value, str) else value


def option_secrets(options: Mapping[str, Any]) -> set[str]:
    """The secrets among the options, and the parts of these secrets that a library may print
    alone.
    """
    return {secret for name, value in options.items() for secret in _secrets_in(name, value)}


def _secrets_in(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from option_secrets(value)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(name, item)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        yield from url_secrets(text)
        if name.lower() not in HARMLESS_OPTIONS:
            yield text
            yield from _PART.findall(text)


def shown_url(url: str) -> str:
    """The address without its credentials."""
    return without(_credentials(url), url)


def url_secrets(url: str) -> set[str]:
    """The credentials of an address, in each form in which they may get into a log line: as they
    are written in the address, decoded, and encoded for an HTTP header.
    """
    written = _credentials(url)
    user_and_password = unquote(url.partition("://")[2].partition("/")[0].rpartition("@")[0])
    in_header = b64encode(user_and_password.encode()).decode()
    return (written | set(map(unquote, written)) | {in_header}) - {""}


def _credentials(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return {url}
    user_and_password = parts.netloc.rpartition("@")[0]
    _, colon, password = user_and_password.partition(":")
    return {password if colon else user_and_password, parts.query} - {""}
