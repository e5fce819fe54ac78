"""What a process of ours does without, though a library would take it where it is installed.

Rule: for processes that are ours as a whole, a worker or a decoder: neither for one that only uses
our library, nor for one with users' plug-ins. Owner: who starts the process.
"""

import sys
from importlib.metadata import entry_points
from typing import Final

_PANDAS: Final = "pandas"
_PLUGINS: Final = "penstock."


class _Absent:
    """For what asks while this stands in `sys.meta_path`, pandas is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)


def without_pandas() -> None:
    """pyarrow looks for pandas at the first array that it makes, for 0.4 s and 32 MB of each
    process, and remembers whether it found it. We need none of what it would do with it.
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
