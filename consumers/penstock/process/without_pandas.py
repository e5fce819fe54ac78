"""Keeps pyarrow from loading pandas in our own processes.

Rule: only for a process that is ours as a whole (such as a worker or a decoder); not for a program
that uses our library, and not for a process with users' plug-ins. Program and plug-ins may need
pandas. Owner: the start of the process.
"""

import sys
from importlib.metadata import entry_points
from typing import Final

_PANDAS: Final = "pandas"
_PLUGINS: Final = "penstock."


class _Absent:
    """While this is in `sys.meta_path`, importing pandas fails as if it were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)


def without_pandas() -> None:
    """Make pyarrow's first array while pandas cannot be imported. pyarrow imports pandas at its
    first array (0.4 s and 32 MB a process) and remembers a failure. We do not need pandas.
    """
    import pyarrow as pa  # noqa: PLC0415 (large, and this module is imported at each start)

    if any(group.startswith(_PLUGINS) for group in entry_points().groups):
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0]).to_numpy()
    finally:
        sys.meta_path.remove(absent)
