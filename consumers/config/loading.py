"""From a TOML file and `PENSTOCK_SECTION__KEY` variables to a `Config`.

Rule: a variable goes before the file; an unknown key is an error that names the nearest valid one,
and an error names the place where the value was written. Owner: the commands.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from consumers.config.whole import NAMED, SECTIONS, TABLES, Config, sections_of
from consumers.variables import check_key, choices, usage, variables

AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class Resolved(NamedTuple):
    """A configuration, and where each key that is not a default comes from. `overridden` has the
    file's keys that a variable sets otherwise.
    """

    config: Config
    sources: Mapping[str, str]
    overridden: Mapping[str, str]


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read `path` (if any), then the environment over it. Raises `Fatal` (exit 2) saying which
    key is wrong.
    """
    return resolve(path, environ).config


def resolve(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Resolved:
    """As `load`, and where it all comes from."""
    tree = _read(path) if path else {}
    sources = {
        f"{name}.{key}": f"{path}" for name, keys in sections_of(tree).items() for key in keys
    }
    overridden = {}
    environ = os.environ if environ is None else environ
    for name, section, key, value in variables(environ, SECTIONS, NAMED):
        keys = _table_of(tree, section)
        if key in keys and keys[key] != value:
            overridden[f"{section}.{key}"] = name
        keys[key] = value
        sources[f"{section}.{key}"] = name
    _take_aws_endpoint(tree, sources, environ)
    for section, kind in NAMED.items():
        for name, keys in tree.get(section, {}).items():
            try:
                msgspec.convert(keys, kind)
            except msgspec.ValidationError as error:
                raise usage(f"configuration: [{section}.{name}]: {error}") from None
    try:
        return Resolved(msgspec.convert(tree, Config), sources, overridden)
    except msgspec.ValidationError as error:
        raise usage(_explained(str(error), sources)) from None


def _table_of(tree: dict[str, Any], section: str) -> dict[str, Any]:
    """The keys of a section, or of `stores.NAME`, to be changed in place."""
    for name in section.split("."):
        tree = tree.setdefault(name, {})
    return tree


def _take_aws_endpoint(
    tree: dict[str, Any], sources: dict[str, str], environ: Mapping[str, str]
) -> None:
    """The address that every AWS client takes is taken here as well, where none is configured."""
    objects = tree.get("objects", {})
    name = next((name for name in AWS_ENDPOINTS if environ.get(name)), None)
    if name is not None and objects.get("endpoint_url") is None:
        tree["objects"] = {**objects, "endpoint_url": environ[name]}
        sources["objects.endpoint_url"] = name


def _explained(error: str, sources: Mapping[str, str]) -> str:
    """With the place where the value was written, and what it may be."""
    found = re.fullmatch(r"(.*) - at `\$\.(\w+)\.(\w+)(.*)`", error)
    if found is None or found[2] in TABLES:
        return f"configuration: {error}"
    what, section, key, _ = found.groups()
    allowed = choices(get_type_hints(SECTIONS[section])[key])
    which = f"; it is one of {', '.join(allowed)}" if allowed else ""
    return f"{sources[f'{section}.{key}']}: {section}.{key}: {what}{which}"


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text())
    except OSError as error:
        raise usage(f"configuration file {path}: {error.strerror}; correct --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise usage(f"configuration file {path}: {error}") from None
    where = f"configuration file {path}"
    for section, keys in tree.items():
        if section in TABLES:
            _check_tables(section, keys, where)
            continue
        if section in SECTIONS or section in NAMED:
            _check_table(section, keys, where)
        if section in NAMED:
            for name, inner in keys.items():
                _check_table(f"{section}.{name}", inner, where)
                for key in inner:
                    check_key(section, key, NAMED, where=where)
            continue
        for key in keys if isinstance(keys, dict) else ("",):
            check_key(section, key, SECTIONS | NAMED, where=where)
    return tree


def _check_table(section: str, keys: Any, where: str) -> None:
    if not isinstance(keys, dict):
        raise usage(f"{where}: [{section}] must be a table")


def _check_tables(section: str, tables: Any, where: str) -> None:
    if not isinstance(tables, list):
        raise usage(f"{where}: write [[{section}]], there may be several")
    for table in tables:
        for key in table:
            check_key(section, key, TABLES, where=where)
