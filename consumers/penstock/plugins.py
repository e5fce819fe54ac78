"""Loads plug-ins of users' packages: the objects behind the entry points of a group.

Rule: if a plug-in cannot be loaded, the start fails with its name and the reason; none is skipped
silently. A plug-in is loaded once in each process. Owner: the registries of formats and requests.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from penstock.errors import Fatal, usage

T = TypeVar("T")


@cache
def plugins(group: str, kind: type[T]) -> tuple[T, ...]:
    """The objects of all entry points of `group`; each must be a `kind`. Raises `Fatal`."""
    found: list[T] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        # A user's module may raise anything when it is imported.
        except Exception as error:
            raise _broken(group, entry.name, entry.value, repr(error)) from error
        if not isinstance(loaded, kind):
            wanted = f"{kind.__module__}.{kind.__qualname__}"
            raise _broken(group, entry.name, entry.value, f"it is {loaded!r}, no {wanted}")
        found.append(loaded)
    return tuple(found)


def _broken(group: str, name: str, value: str, reason: str) -> Fatal:
    return usage(
        f"the entry point {name} = {value} of {group} cannot be used: {reason}; correct or "
        "uninstall its package"
    )
