"""What the text of a key is, declared where the key is: a secret, an address, a file, or options of
another library.

Rule: printing, logging, trimming and checking of files know a key by its mark, never by its name.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

Mark = Literal["secret", "address", "file", "options"]

Secret = Annotated[str, Meta(extra={"mark": "secret"})]
# An address may carry credentials: `http://user:password@host/?token=...`.
Address = Annotated[str, Meta(extra={"mark": "address"})]
File = Annotated[str, Meta(extra={"mark": "file"})]
Options = Annotated[dict[str, Any], Meta(extra={"mark": "options"})]


@cache
def marks(section: type[Struct]) -> Mapping[str, Mark]:
    """A mapping from each key of the section that has a mark to the mark. A list or a mapping of
    marked texts has the mark of its texts.
    """
    hints = get_type_hints(section, include_extras=True)
    return {key: mark for key, hint in hints.items() for mark in _marks_in(hint)}


@cache
def nested(section: type[Struct]) -> Mapping[str, type[Struct]]:
    """A mapping from each key of the section that is a table of keys of its own, such as
    `kafka.oauth`, to the class of that table.
    """
    hints = get_type_hints(section)
    tables = {key: _struct_in(hint) for key, hint in hints.items()}
    return {key: table for key, table in tables.items() if table is not None}


def marked(
    section: type[Struct], keys: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], str, Mark]]:
    """The marked keys of a section and of its nested tables that are set: each with the dictionary
    that holds it.
    """
    for key, mark in marks(section).items():
        if keys.get(key) is not None:
            yield keys, key, mark
    for key, table in nested(section).items():
        if isinstance(keys.get(key), dict):
            yield from marked(table, keys[key])


def _struct_in(hint: Any) -> type[Struct] | None:
    kinds = (hint, *get_args(hint))
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)), None
    )


def _marks_in(hint: Any) -> Iterator[Mark]:
    if get_origin(hint) is Annotated:
        for meta in hint.__metadata__:
            if isinstance(meta, Meta) and meta.extra and "mark" in meta.extra:
                yield meta.extra["mark"]
    for inner in get_args(hint):
        yield from _marks_in(inner)
