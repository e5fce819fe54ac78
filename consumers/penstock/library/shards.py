"""Which objects this process answers, if several processes divide them.

Rule: the option `--shard` names this process's share, or leaves that to the variables of the
scheduler that started the processes. The processes do not talk to each other. Owner: the command.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn

from penstock.adapters.inputs.left_out_objects import Shard
from penstock.errors import usage


class Share(NamedTuple):
    """Which objects are answered. `shard`: only objects of this shard. `skip_existing`: only
    objects without a result; `skipped` is called for each object that has a result.
    """

    shard: Shard | None = None
    skip_existing: bool = False
    skipped: Callable[[], object] = lambda: None


ALL: Final = Share()

_WRITTEN: Final = re.compile(r"(?P<index>\d+|auto)(/(?P<count>\d+))?")
# A Job with completionMode: Indexed sets this. Kubernetes does not tell how many processes there
# are.
_KUBERNETES: Final = "JOB_COMPLETION_INDEX"
_AWS: Final = ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE")
_SLURM: Final = "SLURM_ARRAY_TASK_"


def shard_of(text: str, environ: Mapping[str, str]) -> Shard:
    """The shard that `text` names: `I/N`, or by the scheduler's variables `auto/N` or `auto`.
    Raises `Fatal`.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or (found["index"] != "auto" and found["count"] is None):
        _refuse(text, "write I/N, as 0/4 to 3/4, or auto/N, or auto")
    given = int(found["count"]) if found["count"] else None
    index, count = _told(text, environ) if found["index"] == "auto" else (int(found["index"]), None)
    if given is not None and count is not None and given != count:
        _refuse(text, f"the scheduler of this process says that there are {count}")
    count = given if given is not None else count
    if count is None:
        _refuse(text, f"{_KUBERNETES} says which, but nothing says of how many: write auto/N")
    if not 0 <= index < count:
        _refuse(text, f"I counts from 0 to N - 1, and it is {index} of {count}")
    return Shard(index, count)


def _told(text: str, environ: Mapping[str, str]) -> tuple[int, int | None]:
    """Index and count by the scheduler's variables; None: the scheduler does not tell the count."""
    try:
        if _KUBERNETES in environ:
            return int(environ[_KUBERNETES]), None
        if _AWS[0] in environ:
            size = environ.get(_AWS[1])
            return int(environ[_AWS[0]]), int(size) if size is not None else None
        if f"{_SLURM}ID" in environ:
            return _of_slurm(text, environ)
        _refuse(text, f"there is no {_KUBERNETES}, {_AWS[0]} or {_SLURM}ID: write I/N")
    except ValueError as error:
        _refuse(text, f"a scheduler's variable is no number: {error}")


def _of_slurm(text: str, environ: Mapping[str, str]) -> tuple[int, int]:
    """Index and count by Slurm. Its ids begin anywhere, with any step: `--array=1-7:2` makes the
    tasks 1, 3, 5 and 7.
    """
    one, count, first, last = (
        int(environ[f"{_SLURM}{name}"]) if f"{_SLURM}{name}" in environ else None
        for name in ("ID", "COUNT", "MIN", "MAX")
    )
    if one is None or count is None:
        _refuse(text, f"there is {_SLURM}ID, but no {_SLURM}COUNT: write I/N")
    if first is None or last is None or count < 2:
        return (one if first is None else one - first), count
    step, rest = divmod(last - first, count - 1)
    if rest or (one - first) % max(step, 1):
        _refuse(text, "the ids of --array are not evenly spaced: write I/N")
    return (one - first) // max(step, 1), count


def _refuse(text: str, said: str) -> NoReturn:
    raise usage(f"--shard {text}: {said}")
