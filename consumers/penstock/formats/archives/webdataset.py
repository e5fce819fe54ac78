"""Reads the samples of a WebDataset: files that lie side by side, with the same name up to the
first dot.

Rule: `rows.keep` names extensions, whose files are kept with the rows of their sample. So these
rows wait until the next sample begins, at most one sample's; above twice `limits.row_bytes` they
are handed on early, with the kept files that have come until then.
"""

import re
from collections.abc import Iterator
from typing import Final

import orjson

from penstock.core.rows.payload import Kept
from penstock.formats.kept_columns import ON_ONE_LINE
from penstock.formats.parser_chain import Members, Parser
from penstock.formats.runs import RowOptions, Run

# A kept file becomes part of the record of each row of its sample. So it is limited to a size that
# is enough for labels or boxes, but not for pictures.
KEPT_BYTES: Final = 64 << 10
# What WebDataset's own reader takes for numbers and for JSON.
_NUMBERS: Final = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
_JSON: Final = frozenset({"json", "jsn"})
# At most 18 digits, so that each reader's integers hold it.
_NUMBER = re.compile(rb"[+-]?[0-9]{1,18}")


class WebDatasetSamples:
    """The members of an archive with samples. `members`: opens those files that become rows."""

    def __init__(self, options: RowOptions, members: Members) -> None:
        self.name = ""
        self.runs: list[Run] = []
        self.files: dict[str, bytes] = {}
        # The extension that each name of `rows.keep` means, in any case.
        self._keep = {name: name.lower() for name in options.keep}
        self._kept = frozenset(self._keep.values())
        self._most_bytes = 2 * options.row_bytes
        self._members = members

    def open(self, path: str) -> Parser | None:
        name, extension = _split(path)
        if extension in self._kept:
            self.pass_over(path, told=False)
            return _FileParser(self, name, extension)
        parser = self._members.open(path)
        return None if parser is None else _RowsParser(self, name, path, parser)

    def pass_over(self, path: str, kind: str = "", *, told: bool = True) -> None:
        self._members.pass_over(path, kind, told=told)

    def lose(self, path: str) -> None:
        self._members.lose(path)

    def end(self) -> Iterator[Run]:
        yield from self.rest()
        yield from self._members.end()

    def rest(self) -> Iterator[Run]:
        """The rows of the current sample, which ends here."""
        runs, self.runs = self.runs, []
        for run in runs:
            columns = [self._columns()] * run.rows
            yield run if run.payload is None else run._replace(kept=Kept.of(columns, None))

    def begin(self, name: str) -> Iterator[Run]:
        """Call this before each part of a file of the sample `name`. If another sample was held
        until now, the rows of that sample are given.
        """
        if name != self.name:
            yield from self.rest()
            self.name = name
            self.files.clear()

    def hold(self, run: Run) -> Iterator[Run]:
        """Hold a run of the current sample. If the held runs are too large together, all of them
        are given.
        """
        self.runs.append(run)
        held = sum(each.payload.nbytes for each in self.runs if each.payload is not None)
        if held > self._most_bytes:
            yield from self.rest()

    def _columns(self) -> bytes:
        return b"{%b}" % b",".join(
            b"%b:%b" % (orjson.dumps(name), _value(extension, self.files.get(extension)))
            for name, extension in self._keep.items()
        )


class _RowsParser(Parser):
    """A member with rows, which are held back until the sample is complete."""

    def __init__(self, samples: WebDatasetSamples, name: str, path: str, parser: Parser) -> None:
        self._samples, self._name, self._path, self._parser = samples, name, path, parser
        self.step_bytes, self.damage = parser.step_bytes, parser.damage

    def feed(self, data: bytes) -> Iterator[Run]:
        yield from self._samples.begin(self._name)
        for run in self._parser.feed(data):
            yield from self._samples.hold(run._replace(member=self._path))
        # `step_bytes` and `damage` change when the parser has recognised its content.
        self.step_bytes, self.damage = self._parser.step_bytes, self._parser.damage

    def close(self) -> Iterator[Run]:
        yield from self._samples.begin(self._name)
        for run in self._parser.close():
            yield from self._samples.hold(run._replace(member=self._path))


class _FileParser(Parser):
    """A member that is kept with the rows of its sample."""

    def __init__(self, samples: WebDatasetSamples, name: str, extension: str) -> None:
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
    """The name of the sample, and the rest of the file's name in small letters: `train/000017` and
    `left.jpg`.
    """
    folder, slash, file = path.rpartition("/")
    name, _, extension = file.partition(".")
    return f"{folder}{slash}{name}", extension.lower()


def _value(extension: str, data: bytes | None) -> bytes:
    """A kept file as JSON. Its extension tells what it is, and not its text, because a caption may
    be `2012` or `null`. A file that is missing, or that is neither what its extension says nor
    text, becomes null.
    """
    if data is None:
        return b"null"
    kind = extension.rpartition(".")[2]
    text = data.strip()
    if kind in _NUMBERS and _NUMBER.fullmatch(text):
        return b"%d" % int(text)
    if kind in _JSON:
        try:
            orjson.loads(text)
            return text.translate(ON_ONE_LINE)
        except orjson.JSONDecodeError:
            pass
    try:
        return orjson.dumps(text.decode())
    except UnicodeDecodeError:
        return b"null"
