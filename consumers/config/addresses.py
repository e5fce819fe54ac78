"""Addresses among the values: one that is none is refused when it is read, not when it is used.

Rule: only the form is looked at; whether anybody answers there is asked by the start and the
doctor. Owner: `config.load`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from consumers.config.secrets import shown_url
from consumers.config.whole import Config, sections_of

_HTTP: Final = ("http", "https")
_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_PATH: Final = ("/", "./", "../", "~")


class _Kind(NamedTuple):
    """What an address of one key is: its schemes (none: those that a store knows), and one to be
    shown. Where `file` is among them, a path of this machine may have been meant.
    """

    schemes: tuple[str, ...]
    example: str
    bare: str


_SERVER: Final = _Kind((*_HTTP, "grpc", "grpcs"), "http://localhost:8080", "http://{}")
_MANAGEMENT: Final = _Kind(_HTTP, "http://localhost:8081", "http://{}")
_ENDPOINT: Final = _Kind((*_HTTP, "file"), "http://localhost:9000", "http://{}")
_STORE: Final = _Kind((), "s3://bucket", "s3://{}, gs://{} or az://{}")
_OF_MODEL: Final = {"url": _SERVER, "replicas": _SERVER, "management_url": _MANAGEMENT}
_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "objects": {"endpoint_url": _ENDPOINT},
    "stores": {"url": _STORE, "endpoint_url": _ENDPOINT},
    "model": _OF_MODEL,
    "models": _OF_MODEL,
    "regions": {"models": _SERVER},
}


def wrong_addresses(cfg: Config) -> Iterator[tuple[str, str, str]]:
    """The section and key of each, and what is wrong with its value, in words."""
    for section, keys in sections_of(msgspec.to_builtins(cfg)).items():
        for key, kind in _KINDS.get(re.split(r"[.\[]", section)[0], {}).items():
            values = keys[key] if isinstance(keys[key], list) else [keys[key]]
            for value in values:
                said = None if value is None else _wrong(value, kind)
                if said is not None:
                    yield section, key, said


def _wrong(value: str, kind: _Kind) -> str | None:
    found = _ADDRESS.fullmatch(value)
    if found is None:
        return f"= {_shown(value)!r} has no scheme; write {_remedy(value, kind)}"
    scheme, rest = found["scheme"].lower(), found["rest"]
    if kind.schemes and scheme not in kind.schemes:
        known = ", ".join(f"{one}://" for one in kind.schemes)
        return f"= {_shown(value)!r} begins with none of {known}; write {kind.example}"
    if kind.schemes and not rest.strip("/"):
        return f"= {_shown(value)!r} names nothing; write {kind.example}"
    if scheme == "file" and rest and not rest.startswith("/"):
        path = rest.removeprefix("./")
        return f"= {value!r} names a host; a folder is file:///{path}, with its whole path"
    return None


def _remedy(value: str, kind: _Kind) -> str:
    is_path = value.startswith(_PATH)
    if is_path and kind.schemes and "file" not in kind.schemes:
        return kind.example
    if is_path:
        whole = value if value.startswith("/") else "/whole/path"
        return f"file://{whole} for a folder of this machine"
    return kind.bare.replace("{}", _shown(value))


def _shown(value: str) -> str:
    """Without the credentials; `shown_url` knows them behind a scheme only."""
    return shown_url(value) if "://" in value else shown_url(f"//{value}").removeprefix("//")
