"""What a Python program gives to `predict`: names of objects, or rows that it holds in memory.

Rule: rows are never taken for names. They become a file in the form that keeps their types (Arrow
for tables, npy for arrays, JSON for lists), in a folder that is removed at the end, and the
pipeline reads this file like any other. pandas and polars are not imported: a table of any library
tells its columns by the interface `__arrow_c_stream__`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.adapters.stores.files_and_stdin import MEMORY
from penstock.errors import usage

# A name, a path, several of them, or rows: a table, an array, or a list of rows.
Given = Any
_ROW = (list, tuple, dict, int, float, bool, type(None), np.ndarray, np.generic)


class Objects(NamedTuple):
    """`urls`: everything that was given, in its order. `files`: for the names of rows in memory,
    the files that have these rows.
    """

    urls: Sequence[str]
    files: Mapping[str, str]


@contextmanager
def objects_of(given: Iterable[Given]) -> Iterator[Objects]:
    """Raises `Fatal` if something is neither a name nor rows."""
    urls: list[str] = []
    files: dict[str, str] = {}
    with TemporaryDirectory(prefix="penstock-rows-") as folder:
        for one in given:
            names = _names(one)
            if names is not None:
                urls += names
                continue
            path = _written(one, Path(folder) / f"rows-{len(files)}")
            name = f"{MEMORY}{path.name}"
            files[name] = str(path)
            urls.append(name)
        yield Objects(urls, files)


def _names(given: Given) -> list[str] | None:
    """The names; None: these are rows."""
    if isinstance(given, str | os.PathLike):
        return [os.fspath(given)]
    if _is_table(given) or isinstance(given, np.ndarray | Mapping | bytes | bytearray):
        return None
    if not isinstance(given, Iterable):
        return None
    names = given if isinstance(given, Sequence) else list(given)
    if all(isinstance(one, str | os.PathLike) for one in names):
        return [os.fspath(one) for one in names]
    return None


def _is_table(given: Given) -> bool:
    """A single column, such as a Series, has the interface, too, but no columns. A frame of pandas
    before 2.2 has no interface, and as an iterable it is the names of its columns.
    """
    has_columns = hasattr(given, "columns") or hasattr(given, "schema")
    return has_columns and (hasattr(given, "__arrow_c_stream__") or hasattr(given, "iloc"))


def _written(rows: Given, stem: Path) -> Path:
    if _is_table(rows):
        table = _table(rows)
        path = stem.with_suffix(".arrow")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return path
    if isinstance(rows, np.ndarray):
        path = stem.with_suffix(".npy")
        try:
            np.save(path, rows, allow_pickle=False)
        except ValueError as error:
            raise usage(f"an array of {rows.dtype} has no numbers: {error}") from None
        return path
    if isinstance(rows, list | tuple) and all(isinstance(row, _ROW) for row in rows):
        path = stem.with_suffix(".json")
        try:
            path.write_bytes(msgspec.json.encode(rows, enc_hook=_plain))
        except (TypeError, ValueError, RecursionError) as error:
            raise usage(f"the rows cannot be written as JSON: {error}") from None
        return path
    raise usage(
        f"{_shown(rows)} is neither the name of an object nor rows; rows are a table (Arrow, "
        "pandas, polars), a numpy array, or a list of rows, each a list or a dict"
    )


def _table(rows: Given) -> pa.Table:
    try:
        return pa.table(rows)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise usage(f"the columns of a {type(rows).__name__} cannot be read: {error}") from None


def _plain(value: Any) -> Any:
    """A value of numpy as one of Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{_shown(value)} has no form in JSON")


def _shown(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, list | tuple) and value:
        odd = next(row for row in value if not isinstance(row, _ROW))
        return f"a {name} with {_shown(odd)}"
    return f"a value of the type {name}"
