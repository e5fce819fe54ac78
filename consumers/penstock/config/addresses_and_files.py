"""Refuses malformed addresses, and names of files that cannot be read, before a worker needs them.

Rule: only the form of an address is checked. Files are checked only by `config`, `doctor` and
`run`, because other commands must not fail for a file that they never open.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock.config.all_sections import Config, kind_of, sections_of
from penstock.config.marks import marked
from penstock.config.secrets import shown_url
from penstock.config.unknown_keys import section_shown
from penstock.errors import usage

_HTTP: Final = ("http", "https")
_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
# Addresses that are a path of this machine, and what lies there.
_FILE: Final = {"file": "a folder", "unix": "a socket"}
_PATH: Final = ("/", "./", "../", "~")


class _Kind(NamedTuple):
    """The form that a key's addresses must have. `schemes`: the schemes that the key takes; empty:
    every scheme that a store knows. `bare`: for an address without a scheme, the address that the
    error message suggests instead.
    """

    schemes: tuple[str, ...]
    example: str
    bare: str


_SERVER: Final = _Kind((*_HTTP, "grpc", "grpcs"), "http://localhost:8080", "http://{}")
_MANAGEMENT: Final = _Kind((*_HTTP, "unix"), "http://localhost:8081", "http://{}")
_ENDPOINT: Final = _Kind((*_HTTP, "file"), "http://localhost:9000", "http://{}")
_TRACES: Final = _Kind(_HTTP, "http://localhost:4318/v1/traces", "http://{}")
_TOKENS: Final = _Kind(_HTTP, "https://login.example/oauth2/token", "https://{}")
_STORE: Final = _Kind((), "s3://bucket", "s3://{}, gs://{} or az://{}")
_ADDRESSES_OF_MODEL: Final = {"url": _SERVER, "replicas": _SERVER, "management_url": _MANAGEMENT}
_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "objects": {"endpoint_url": _ENDPOINT},
    "stores": {"url": _STORE, "endpoint_url": _ENDPOINT},
    "model": _ADDRESSES_OF_MODEL,
    "models": _ADDRESSES_OF_MODEL,
    "traces": {"endpoint": _TRACES},
    "regions": {"models": _SERVER},
    "kafka": {"token_url": _TOKENS},  # in the section kafka.oauth
}


def wrong_addresses(cfg: Config) -> Iterator[tuple[str, str, str]]:
    """For each malformed address: its section, its key, and what is wrong with it."""
    plain = msgspec.to_builtins(cfg)
    sections = sections_of(plain) | {"kafka.oauth": plain["kafka"]["oauth"] or {}}
    for section, keys in sections.items():
        for key, kind in _KINDS.get(re.split(r"[.\[]", section)[0], {}).items():
            values = keys[key] if isinstance(keys.get(key), list) else [keys.get(key)]
            for value in values:
                reason = None if value is None else _wrong(value, kind)
                if reason is not None:
                    yield section, key, reason


def _wrong(value: str, kind: _Kind) -> str | None:
    match = _ADDRESS.fullmatch(value)
    if match is None:
        return f"= {_shown(value)!r} has no scheme; write {_remedy(value, kind)}"
    scheme, rest = match["scheme"].lower(), match["rest"]
    if kind.schemes and scheme not in kind.schemes:
        known = ", ".join(f"{prefix}://" for prefix in kind.schemes)
        return f"= {_shown(value)!r} must begin with one of {known}; write {kind.example}"
    if kind.schemes and not rest.strip("/"):
        return f"= {_shown(value)!r} has no host or path; write {kind.example}"
    if kind.schemes and scheme not in _FILE and (wrong := _wrong_host(value)):
        return f"{wrong}; write {kind.example}"
    if scheme in _FILE and rest and not rest.startswith("/"):
        path, what = rest.removeprefix("./"), _FILE[scheme]
        return f"= {value!r} names a host; {what} is {scheme}:///{path}, with its whole path"
    return None


def _wrong_host(value: str) -> str | None:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        # The message does not show the address, because secrets can be masked only if the parts of
        # the address can be told apart.
        return "cannot be read: check its host and port"
    return None if host else f"= {_shown(value)!r} has no host"


def _remedy(value: str, kind: _Kind) -> str:
    is_path = value.startswith(_PATH)
    if is_path and kind.schemes and "file" not in kind.schemes:
        return kind.example
    if is_path:
        whole = value if value.startswith("/") else "/whole/path"
        return f"file://{whole} for a folder of this machine"
    return kind.bare.replace("{}", _shown(value))


def _shown(value: str) -> str:
    """The value without credentials. `shown_url` finds credentials only after `//`, so a value
    without `//` gets one in front.
    """
    return shown_url(value) if "://" in value else shown_url(f"//{value}").removeprefix("//")


def check_files(cfg: Config, sources: Mapping[str, str]) -> None:
    """Raises `Fatal` (exit 2) for the first file that cannot be read. The error names the setting,
    and the place where its value was written. `sources`: as in `Resolved`.
    """
    for section, keys in sections_of(msgspec.to_builtins(cfg)).items():
        for holder, key, mark in marked(kind_of(section), keys):
            if mark != "file":
                continue
            try:
                Path(holder[key]).open("rb").close()
            except OSError as error:
                source = sources.get(f"{section}.{key}", "configuration")
                setting = f"{section_shown(section, keys)}{key} = {holder[key]!r}"
                raise usage(
                    f"{source}: {setting} cannot be read: {error.strerror}; correct the path, or "
                    "leave the key out"
                ) from None
