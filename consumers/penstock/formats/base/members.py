"""The members of an archive: a parser for each, and at the end the rows that are still held.

Rule: a member is opened when its header was read, in the order of the archive; `rest` is called
once, when the archive ends or breaks. Owner: the parser of one archive.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock.errors import Poison
from penstock.formats.base.parser_chain import Parser
from penstock.formats.base.runs import Run


class Members(Protocol):
    def open(self, path: str) -> Parser | None:
        """None passes the member over."""
        ...

    def rest(self) -> Iterator[Run]:
        """Rows that were held back."""
        ...


def of_member(path: str, runs: Iterator[Run]) -> Iterator[Run]:
    """The runs with the member's name, also on errors; runs that were held back have it already."""
    try:
        for run in runs:
            yield run if run.member is not None else run._replace(member=path)
    except Poison as poison:
        raise Poison(poison.code, f'member "{path}": {poison}') from poison
