"""Makes a `Config` from a TOML file and `PENSTOCK_SECTION__KEY` variables, which override it.

Rule: every error names the place where the value was written, and
the nearest valid key.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from penstock.config.all_sections import (
    SHARING,
    Config,
    kind_of,
    sections_of,
)
from penstock.config.regions import in_region
from penstock.config.texts import trim, wrong_addresses
from penstock.config.unknown_keys import section_shown, unknown_keys
from penstock.config.variables import choices, variables
from penstock.errors import EXIT_USAGE, Fatal, usage

REGION = "PENSTOCK_REGION"
AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
AWS_IGNORES_ENDPOINTS = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"


class Resolved(NamedTuple):
    """A configuration, and where its values come from. `sources`: a mapping from each key that is
    not at its default to the place where it was set. `overridden`: a mapping from a key of the file
    to the variable that sets it to another value.
    """

    config: Config
    sources: Mapping[str, str]
    overridden: Mapping[str, str]


class WrongSetting(Fatal):
    """The error for a value that its key does not take. `path`: the names of the tables, from the
    outermost on, and then the key.
    """

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message, exit_code=EXIT_USAGE)
        self.path = path


def path_of(section: str, key: str | None) -> tuple[str | int, ...]:
    """The path of a key. For `url` in the section `models[2]` it is `("models", 2, "url")`."""
    names: list[str | int] = []
    for name in section.split(".", 1) if section else ():
        table, bracket, number = name.partition("[")
        names += [table, int(number.removesuffix("]"))] if bracket else [name]
    return (*names, key) if key is not None else tuple(names)


def load(
    source: Path | Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Make the configuration from `source`: a TOML file, or a mapping with its tables. Environment
    variables override it. Raises `Fatal` (exit 2) that names the wrong key.
    """
    if source is None or isinstance(source, Path):
        return resolve(source, environ).config
    tree = deepcopy(dict(source))
    _check_keys(tree, "config")
    return resolved(tree, "config", environ).config


def resolve(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Resolved:
    """The same as `load`, but also tells where each value comes from."""
    return resolved(_read(path) if path else {}, path, environ)


def resolved(
    tree: dict[str, Any], where: Path | str | None, environ: Mapping[str, str] | None = None
) -> Resolved:
    """Make the configuration. `tree`: the tables of the file or mapping; this function changes
    them. `where`: the name of the file or mapping in messages.
    """
    shared = {section: _taken_out(tree, section) for section in SHARING}
    sources = {
        f"{name}.{key}": f"{where}" for name, keys in sections_of(tree).items() for key in keys
    }
    overridden = {}
    environ = os.environ if environ is None else environ
    if environ.get(REGION):
        tree["region"], sources[".region"] = environ[REGION].strip(), REGION
    for name, section, key, value in variables(environ):
        if section in SHARING:
            shared[section][key] = value
            continue
        keys = _table_of(tree, section)
        if key in keys and keys[key] != value:
            overridden[f"{section}.{key}"] = name
        keys[key] = value
        sources[f"{section}.{key}"] = name
    _take_aws_endpoint(tree, sources, environ)
    for section, keys in shared.items():
        _share(tree.get(section, {}), keys)
    for section, keys in sections_of(tree).items():
        for blank in trim(section, keys):
            place = sources.get(f"{section}.{blank.key}", "configuration")
            message = f"{section_shown(section, keys)}{blank.key} {blank.said}; write it without"
            raise WrongSetting(path_of(section, blank.key), f"{place}: {message}")
        try:
            msgspec.convert(keys, kind_of(section))
        except msgspec.ValidationError as error:
            wrong, message = _explained(str(error), section, keys, sources)
            raise WrongSetting(path_of(section, wrong), message) from None
    cfg = msgspec.convert(tree, Config)
    shown = sections_of(tree)
    for section, key, wrong in wrong_addresses(cfg):
        message = f"{section_shown(section, shown.get(section, {}))}{key} {wrong}"
        place = sources.get(f"{section}.{key}", "configuration")
        raise WrongSetting(path_of(section, key), f"{place}: {message}")
    here = in_region(cfg)
    before, after = cfg.sections(), here.sections()
    for section in ("kafka", "model"):
        changed = [key for key in after[section] if after[section][key] != before[section][key]]
        sources |= {f"{section}.{key}": f"regions.{cfg.region}" for key in changed}
    return Resolved(here, sources, overridden)


def _taken_out(tree: dict[str, Any], section: str) -> dict[str, Any]:
    """Remove and return the keys that stand in the section itself, beside its tables."""
    keys = tree.get(section, {})
    return {key: keys.pop(key) for key in list(keys) if not isinstance(keys[key], dict)}


def _share(tables: dict[str, Any], shared: Mapping[str, Any]) -> None:
    """Copy the section's own keys into each table that does not set them. A region cannot fall back
    on itself, so a table's own name is left out of the list of regions that this table gets.
    """
    for name, keys in tables.items():
        for key, value in shared.items():
            is_list = isinstance(value, list)
            keys.setdefault(key, [other for other in value if other != name] if is_list else value)


def _table_of(tree: dict[str, Any], section: str) -> dict[str, Any]:
    """The keys of a section, or of `stores.NAME`, as a dictionary that the caller may change."""
    for name in section.split("."):
        tree = tree.setdefault(name, {})
    return tree


def _take_aws_endpoint(
    tree: dict[str, Any], sources: dict[str, str], environ: Mapping[str, str]
) -> None:
    """If no address is configured, take it from the variables that AWS's own clients read."""
    objects = tree.get("objects", {})
    name = next((name for name in AWS_ENDPOINTS if environ.get(name)), None)
    is_ignored = environ.get(AWS_IGNORES_ENDPOINTS, "").lower() == "true"
    if name is not None and not is_ignored and objects.get("endpoint_url") is None:
        tree["objects"] = {**objects, "endpoint_url": environ[name]}
        sources["objects.endpoint_url"] = name


def _explained(
    error: str, section: str, keys: Mapping[str, Any], sources: Mapping[str, str]
) -> tuple[str | None, str]:
    """Returns two things: the wrong key (None if msgspec names none); and the error text for
    people, which names the place where the value was written and the values that the key takes.
    """
    match = re.fullmatch(r"(.*) - at `\$\.(\w+)(.*)`", error)
    label = section_shown(section, keys)
    if match is None:
        name = f"[{section}]" if label.endswith(".") else label.removesuffix(": ")
        return None, f"configuration: {name}: {error}"
    what, key, inside = match.groups()
    kind = kind_of(section)
    # `class` of the file is `class_` in Python.
    fields = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    allowed = () if inside else choices(get_type_hints(kind)[fields.get(key, key)])
    which = f"; it is one of {', '.join(allowed)}" if allowed else ""
    where = sources.get(f"{section}.{key}", "configuration")
    return key, f"{where}: {label}{key}{inside}: {what}{which}"


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise usage(f"configuration file {path}: {error.strerror}; correct --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise usage(f"configuration file {path}: {error}") from None
    _check_keys(tree, f"configuration file {path}")
    return tree


def _check_keys(tree: dict[str, Any], where: str) -> None:
    for wrong in unknown_keys(tree):
        raise usage(f"{where}: {wrong.said}")
