"""Checks that this machine allows as many open files, and as much memory, as the configuration may
need.

Rule: pure, except for `limits_here`, which asks the kernel for the limits of this process. Owner:
`examine`.
"""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock import config
from penstock.doctor.finding import Finding

# Open files beside those of fetches and calls: for Kafka's brokers, the page with its viewers,
# decoders, logs, libraries.
OTHER_FILES: Final = 100
# Memory beside the buffer: for the interpreter, libraries, clients' buffers, and a decoder at work.
BASE_BYTES: Final = 300 * config.MIB
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class MachineLimits(NamedTuple):
    """The limits of this process; None: there is no limit."""

    files: int | None
    memory_bytes: int | None


def limits_here() -> MachineLimits:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = None if soft == resource.RLIM_INFINITY else soft
    text = _CGROUP.read_text().strip() if _CGROUP.is_file() else "max"
    return MachineLimits(files, int(text) if text.isdecimal() else None)


def look_at_machine(cfg: config.Config, limits: MachineLimits) -> list[Finding]:
    wrong = [*_files(cfg, limits.files), *_memory(cfg, limits.memory_bytes)]
    return wrong or [Finding("machine", "ok", "its limits of files and memory are high enough")]


def _files(cfg: config.Config, most: int | None) -> Iterator[Finding]:
    fetches = cfg.objects.concurrency + sum(store.concurrency for store in cfg.stores.values())
    calls = cfg.model.max_in_flight + sum(model.max_in_flight for model in cfg.models)
    needed = fetches + calls + OTHER_FILES
    if most is not None and most < needed:
        yield Finding(
            "open files",
            "wrong",
            f"the limit is {most:,}; {fetches} fetches, {calls} calls and the rest may need "
            f"{needed:,}: ulimit -n {2 * needed}, or lower objects.concurrency",
        )


def _memory(cfg: config.Config, most: int | None) -> Iterator[Finding]:
    needed = cfg.limits.buffer_bytes + BASE_BYTES
    if most is not None and most < needed:
        mib = config.MIB
        yield Finding(
            "memory",
            "wrong",
            f"the limit is {most // mib:,} MiB; limits.buffer_bytes and the worker itself may need "
            f"{needed // mib:,}: raise the limit, or lower limits.buffer_bytes",
        )
