"""Finds the columns that a program has added to a table while it wrote the table.

Rule: only the file's own metadata decide. pandas writes the labels of a frame's rows as a column,
unless they are a range: a filtered frame has one column more than the whole frame. Labels without a
name are no data of the table; named ones are a column as any other. Labels that are a range are no
column but a note, named or not. Layout: pandas, "Storing pandas DataFrame objects in Apache Parquet
format".
"""

import re
from typing import Any, Final

import msgspec
import pyarrow as pa

_KEY: Final = b"pandas"
# The names that writers give to labels without a name: pyarrow, and dask.
_UNNAMED: Final = re.compile(r"__index_level_\d+__|__null_dask_index__")
# fastparquet calls such labels as pandas' `reset_index` does, and does not tell that they had none.
_FASTPARQUET: Final = ("fastparquet", "index")


class _Column(msgspec.Struct):
    name: Any = None
    field_name: Any = ""


class _Creator(msgspec.Struct):
    library: Any = None


class _Pandas(msgspec.Struct):
    index_columns: list[Any] = []
    columns: list[_Column] = []
    creator: _Creator = msgspec.field(default_factory=_Creator)


def unnamed_index(schema: pa.Schema) -> list[str]:
    """The columns with labels that have no name."""
    pandas = _told(schema)
    # In files of old versions the columns have no `field_name`.
    names = {column.field_name: column.name for column in pandas.columns}
    return [
        name
        for name in schema.names
        if name in pandas.index_columns
        and (
            names.get(name, name) is None
            or (names.get(name, name) == name and _UNNAMED.fullmatch(name))
            or (pandas.creator.library, name) == _FASTPARQUET
        )
    ]


def named_ranges(schema: pa.Schema) -> list[str]:
    """The names of labels that are not in the table, because pandas has noted their range only."""
    notes = [note for note in _told(schema).index_columns if isinstance(note, dict)]
    return [str(note["name"]) for note in notes if note.get("name") is not None]


def _told(schema: pa.Schema) -> _Pandas:
    try:
        return msgspec.json.decode((schema.metadata or {}).get(_KEY, b"{}"), type=_Pandas)
    except msgspec.DecodeError:
        return _Pandas()
