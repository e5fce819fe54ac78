"""Loads what other packages add to ours: users' plug-ins, and the libraries of our extras.

Rule: a plug-in that cannot be loaded fails the start, by name and reason. A missing extra's error
says how to install it.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from penstock.errors import EXIT_USAGE, Fatal, usage

T = TypeVar("T")

# The project's name for `pip`. It is not `penstock`, because on the package index that name belongs
# to another project.
DISTRIBUTION = "penstock-stream"


@cache
def plugins(group: str, kind: type[T]) -> tuple[T, ...]:
    """The objects of all entry points of `group`. Each object must be a `kind`. Raises `Fatal`."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (it takes half the time of `penstock --help`)

    loaded: list[T] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            plugin = entry.load()
        # A user's module may raise anything when it is imported.
        except Exception as error:
            raise _broken(group, entry.name, entry.value, repr(error)) from error
        if not isinstance(plugin, kind):
            wanted = f"penstock.plugins.{kind.__name__}"
            raise _broken(group, entry.name, entry.value, f"it is {plugin!r}, no {wanted}")
        loaded.append(plugin)
    return tuple(loaded)


def _broken(group: str, name: str, value: str, reason: str) -> Fatal:
    return usage(
        f"the entry point {name} = {value} of {group} cannot be used: {reason}; correct or "
        "uninstall its package"
    )


class MissingExtra(Fatal):
    """This installation lacks a library; the configuration may be right."""


def missing_extra(what: str, extra: str, error: ImportError | None = None) -> MissingExtra:
    """The error for a missing library that `what` needs. It says how to install the library."""
    missing = f"{error.name or 'a library'} ({error})" if error is not None else "an extra"
    message = f"{what} needs {missing}: {install_command(extra)}"
    return MissingExtra(message, exit_code=EXIT_USAGE)


def install_command(extra: str) -> str:
    """The command that a user of this installation types to install an extra."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (it takes half the time of `penstock --help`)

    try:
        origin = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    return command_from(origin, extra, Path.cwd(), Path(sys.prefix))


def command_from(origin: str | None, extra: str, here: Path, prefix: Path) -> str:
    """The command that installs an extra. `origin`: the text that pip wrote about an installation
    that is not from the index (the Python Packaging User Guide's "Direct URL Data Structure").
    `here`: the folder in which the user types the command.
    """
    named = f"{DISTRIBUTION}[{extra}]"
    if origin is None:
        return f"pip install '{named}'"
    direct_url = json.loads(origin)
    url = direct_url["url"]
    if direct_url.get("dir_info", {}).get("editable"):
        folder = Path(unquote(urlsplit(url).path))
        pip, checkout = prefix / "bin" / "pip", str(folder)
        if here == folder:
            checkout, pip = ".", pip.relative_to(here) if pip.is_relative_to(here) else pip
        return f"{pip} install -e '{checkout}[{extra}]'"
    if "vcs_info" in direct_url:
        url = f"{direct_url['vcs_info']['vcs']}+{url}@{direct_url['vcs_info']['commit_id']}"
    return f"pip install '{named} @ {url}'"
