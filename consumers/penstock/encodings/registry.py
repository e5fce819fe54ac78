"""Finds the encoding of a result object by the name of its format.

Rule: pyarrow is loaded when Parquet is asked for. Owner: the settings.
"""

from collections.abc import Callable

from penstock.encodings.base import Encoding
from penstock.encodings.csv import CsvLines
from penstock.encodings.jsonl import Gzip, Lines


def find(name: str) -> Callable[[], Encoding]:
    """`name` is one of `core.records.result_template.FORMATS`."""
    if name == "parquet":
        from penstock.encodings.parquet import ParquetRows  # noqa: PLC0415 (pyarrow is large)

        return ParquetRows
    if name == "csv":
        return CsvLines
    return Lines if name == "jsonl" else lambda: Gzip(Lines())
