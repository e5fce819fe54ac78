"""What the kernel refuses a decoder, even if an object takes over the libraries that read it.

Rule: no more memory than its limit, no files but those of Python and the libraries, no writing, no
connections, processes or programs, nothing to other processes. What a kernel cannot refuse
`missing` says; it still refuses the rest.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

from penstock.decoders.system_calls import MOST_FILES, filter_calls, is_known

# A 4K frame with its reference frames takes 300 MB, a picture of 90 megapixels 270 MB.
MOST_MEMORY_BYTES: Final = 2 << 30

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
# Landlock (https://docs.kernel.org/userspace-api/landlock.html). Its numbers are the same on all
# machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILE: Final = 1 << 2
_READ: Final = _READ_FILE | 1 << 3
_ALL_OF_FILES: Final = (1 << 13) - 1
_ALL_OF_TCP: Final = 3
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 3
# What libraries read beside their own folders: other libraries (of Nix and Guix, too, where all can
# read all), the machine's processors and memory, time zones.
_READABLE: Final = (
    *("/nix/store", "/gnu/store"),
    *("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom"),
    *("/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
)
# The head and the sets of capset(2): version 3, this process, nothing.
_CAPABILITIES: Final = struct.pack("=Ii", 0x20080522, 0)
_NO_CAPABILITIES: Final = bytes(24)


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def bound(files: int | None) -> int | None:
    """Limit this process until it ends. `files`: the `readable_files`. Returns what tells of calls
    that are not allowed, see `filter_calls`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with suppress(OSError):  # so that the kernel kills decoders first if memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    held_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    memory_bytes = held_bytes + MOST_MEMORY_BYTES
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_SIGPENDING, 0),  # they count for all processes of the user
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # without it, the others need a capability
    if files is not None:
        _done(libc.syscall(_RESTRICT_SELF, files, 0))
        os.close(files)
    libc.capset(_CAPABILITIES, _NO_CAPABILITIES)
    # Programs that the system runs for core dumps get all memory, whatever the limit is.
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return filter_calls(libc)


def missing() -> list[str]:
    """What this kernel, or the profile of a container, cannot keep decoders from."""
    libc = ctypes.CDLL(None, use_errno=True)
    lacks = []
    if not is_known(libc):
        lacks.append("sockets, processes and writing files (no seccomp)")
    if _landlock_version(libc) < 1:
        lacks.append("reading files of this user and of other processes (no Landlock)")
    return lacks


def _landlock_version(libc: ctypes.CDLL) -> int:
    return int(libc.syscall(_CREATE_RULESET, None, 0, 1))


def readable_files() -> int | None:
    """The rules by which a decoder may read the files of Python and of the libraries, and no
    others. This also hides the memory and the environment of other processes. None: the kernel has
    no such rules. Call this when the libraries are loaded.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = _landlock_version(libc)
    if version < 1:
        return None
    # Older kernels know fewer fields: connections since version 4, signals since version 6.
    fields = (_ALL_OF_FILES, _ALL_OF_TCP, _SIGNALS_AND_ABSTRACT_SOCKETS)
    known = 1 + (version >= 4) + (version >= 6)
    attributes = struct.pack(f"={known}Q", *fields[:known])
    rules = _done(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    # Packages may lie elsewhere than `sys.path` says, if they are installed as editable.
    packages = {place for module in [*sys.modules.values()] for place in _folders_of(module)}
    for path in (*sys.path, sys.prefix, sys.base_prefix, *packages, *_READABLE):
        with suppress(OSError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            may = _READ if Path(path).is_dir() else _READ_FILE
            libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", may, place), 0)
            os.close(place)
    return rules


def _folders_of(module: object) -> Iterable[str]:
    """The folders of a package; a module that is a single file has none."""
    spec = getattr(module, "__spec__", None)
    places = spec.submodule_search_locations if isinstance(spec, ModuleSpec) else None
    return places or ()


def _done(result: int) -> int:
    """An unconfined decoder would be worse than none. So this raises `OSError` if the kernel that
    knows Landlock refused it.
    """
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused")
    return result
