"""WebDataset: the files of a sample share their name up to its first dot, and lie side by side.

Rule: if `rows.keep` names extensions, the files with these are kept with the sample's rows. So its
rows wait until the next sample begins. One sample is held; if it is larger than two rows may be,
its rows go on with the files that came so far. Owner: the parser of one archive.
"""

from collections.abc import Iterator
from typing import Final

import orjson

from penstock.core.rows.kept import Kept
from penstock.formats.base.parser_chain import Members, Parser
from penstock.formats.base.runs import RowOptions, Run

# A kept file goes into the record of each row: it is for labels and boxes, not for pictures.
KEPT_BYTES: Final = 64 << 10


class Samples:
    """`Members` whose files with these extensions are kept with the rows of the others."""

    def __init__(self, options: RowOptions, members: Members) -> None:
        self.name = ""
        self.runs: list[Run] = []
        self.files: dict[str, bytes] = {}
        self._keep = options.keep
        self._most_bytes = 2 * options.row_bytes
        self._members = members

    def open(self, path: str) -> Parser | None:
        name, extension = _split(path)
        if extension in self._keep:
            return _FileParser(self, name, extension)
        parser = self._members.open(path)
        return None if parser is None else _RowsParser(self, name, path, parser)

    def rest(self) -> Iterator[Run]:
        """The rows of the sample that ends here."""
        runs, self.runs = self.runs, []
        for run in runs:
            columns = [self._columns()] * run.rows
            yield run if run.payload is None else run._replace(kept=Kept.of(columns, None))

    def begin(self, name: str) -> Iterator[Run]:
        if name != self.name:
            yield from self.rest()
            self.name = name
            self.files.clear()

    def hold(self, run: Run) -> Iterator[Run]:
        self.runs.append(run)
        held = sum(one.payload.nbytes for one in self.runs if one.payload is not None)
        if held > self._most_bytes:
            yield from self.rest()

    def _columns(self) -> bytes:
        return b"{%b}" % b",".join(
            b"%b:%b" % (orjson.dumps(name), _value(self.files.get(name))) for name in self._keep
        )


class _RowsParser:
    """A member with rows, which are held back until the sample is complete."""

    def __init__(self, samples: Samples, name: str, path: str, parser: Parser) -> None:
        self._samples, self._name, self._path, self._parser = samples, name, path, parser
        self.step_bytes, self.damage = parser.step_bytes, parser.damage

    def feed(self, data: bytes) -> Iterator[Run]:
        yield from self._samples.begin(self._name)
        for run in self._parser.feed(data):
            yield from self._samples.hold(run._replace(member=self._path))
        # The parser may have recognised its content by now.
        self.step_bytes, self.damage = self._parser.step_bytes, self._parser.damage

    def close(self) -> Iterator[Run]:
        yield from self._samples.begin(self._name)
        for run in self._parser.close():
            yield from self._samples.hold(run._replace(member=self._path))


class _FileParser(Parser):
    """A member that is kept with the rows of its sample."""

    def __init__(self, samples: Samples, name: str, extension: str) -> None:
        self._samples, self._name, self._extension = samples, name, extension
        self._data = b""

    def feed(self, data: bytes) -> Iterator[Run]:
        self._data += data[: KEPT_BYTES + 1 - len(self._data)]
        return self._samples.begin(self._name)

    def close(self) -> Iterator[Run]:
        yield from self._samples.begin(self._name)
        if len(self._data) <= KEPT_BYTES:
            self._samples.files[self._extension] = self._data


def _split(path: str) -> tuple[str, str]:
    """The name of the sample and that of the file in it: `train/000017` and `left.jpg`."""
    folder, slash, file = path.rpartition("/")
    name, _, extension = file.partition(".")
    return f"{folder}{slash}{name}", extension


def _value(data: bytes | None) -> bytes:
    """The file as it is if it is JSON (a label's number, boxes), else as a JSON string; null if it
    is not text.
    """
    if data is None:
        return b"null"
    try:
        return orjson.dumps(orjson.loads(data))
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.dumps(data.decode().strip())
    except UnicodeDecodeError:
        return b"null"
