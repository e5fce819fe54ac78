"""Texts of the configuration, which come from files and shells: trims blanks and line breaks, and
refuses control characters, malformed addresses, and files that cannot be read.

Rule: blanks are trimmed at a text's ends. Inside, a control character is refused, and so is a blank
in the host of an address. In secrets, patterns, templates and names of columns each blank counts,
so only line breaks are trimmed. Options of other libraries and JSON stay as they are. The variables
of AWS's clients, which these read by themselves, cannot be trimmed, so they are refused.

Only the form of an address is checked. Files are checked only by `config`, `doctor` and `run`,
because other commands must not fail for a file that they never open.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from penstock.config.all_sections import Config, kind_of, sections_of
from penstock.config.marks import marked, marks, nested
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


_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\u0085\u2028\u2029]")
_AWS: Final = "AWS_"
# Sections and keys of names of columns, patterns and templates.
_AS_WRITTEN: Final = frozenset({"rows", "scenes", "output", "routes"})
_BLANKS_COUNT: Final = frozenset({"stream_from", "time_from", "input_pattern", "allow", "route"})
_BLANK_IN_HOST: Final = re.compile(r"[^/]*//[^/]*\s")


class WrongText(NamedTuple):
    """A key whose text is refused, and what is said of it."""

    key: str
    said: str


def trim(section: str, keys: dict[str, Any]) -> Iterator[WrongText]:
    """Trim the texts of a section, in its own dictionary. Yields those that are refused."""
    yield from _trim(kind_of(section), section, keys)


def _trim(kind: type[Struct], section: str, keys: dict[str, Any]) -> Iterator[WrongText]:
    of_key, tables = marks(kind), nested(kind)
    as_written = re.split(r"[.\[]", section)[0] in _AS_WRITTEN
    for key, value in keys.items():
        mark = of_key.get(key)
        if mark == "options" or key == "canary":
            continue
        if key in tables and isinstance(value, dict):
            yield from _trim(tables[key], section, value)
            continue
        # The id of an access key (`key`) is a secret, but has no blanks.
        keep = as_written or (mark == "secret" and key != "key") or key in _BLANKS_COUNT
        texts: list[str] = []
        keys[key] = _trimmed(value, "\r\n" if keep else None, texts)
        for text in texts:
            if _CONTROL.search(text):
                yield WrongText(key, "has a line break or another control character in it")
            elif mark == "address" and _BLANK_IN_HOST.match(text):
                yield WrongText(key, "has a blank in its host")


def wrong_variable(name: str, text: str) -> str | None:
    """What is wrong with a variable of AWS's clients."""
    if name.startswith(_AWS) and (text != text.strip() or _CONTROL.search(text)):
        return (
            "has blanks or a line break at an end, or a control character in it, and S3's clients "
            "read it as it is; set it anew without them"
        )
    return None


def _trimmed(value: Any, characters: str | None, texts: list[str]) -> Any:
    """The value with trimmed texts, which are added to `texts`."""
    if isinstance(value, str):
        texts.append(value.strip(characters))
        return texts[-1]
    if isinstance(value, list):
        return [_trimmed(item, characters, texts) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(item, characters, texts) for key, item in value.items()}
    return value
