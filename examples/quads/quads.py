from collections.abc import Iterator

import numpy as np

from penstock.plugins import Format, Matrix, Parser, Poison, RowOptions, Run, makes

MAGIC = b"QUADS\0\0\1"
RECORD_BYTES = 32


class QuadsParser(Parser):
    """Fed pieces cut anywhere; holds what is not yet a whole record, and nothing else."""

    damage = "bad_format"  # what it is called if the bytes break off

    def __init__(self, options: RowOptions) -> None:
        self._held = b""
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Run]:
        self._held += data
        if not self._begun:
            if len(self._held) < len(MAGIC):
                return
            if not self._held.startswith(MAGIC):
                raise Poison("bad_format", "this is no file of quads")
            self._held, self._begun = self._held[len(MAGIC) :], True
        records, rest = divmod(len(self._held), RECORD_BYTES)
        if records:
            whole = self._held[: len(self._held) - rest]
            self._held = self._held[len(whole) :]
            values = np.frombuffer(whole, "<f8").reshape(records, 4).astype("<f4")
            yield Run(records, Matrix(values))

    def close(self) -> Iterator[Run]:
        if self._held or not self._begun:
            raise Poison("bad_format", f"the file ends with {len(self._held)} bytes of a record")
        yield from ()


QUADS = Format(
    name="quads",
    open=QuadsParser,
    makes=makes("matrix"),  # the requests that take its rows: float32
    extensions=(".quads",),
    looks=lambda head: head.startswith(MAGIC),
)
