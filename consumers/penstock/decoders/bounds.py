"""What the kernel refuses a decoder, even if an object takes over the libraries that read it.

Rule: a decoder gets no more memory than its limit, reads no files but those of Python and of the
libraries, writes none, starts no connections, processes or other programs, and does nothing to
other processes. If a kernel cannot refuse one of these things, it still refuses the others, and
`missing` says which it cannot. Owner: the decoder, before its first task.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

# A 4K frame with its reference frames takes 300 MB, a picture of 90 megapixels 270 MB.
MOST_MEMORY_BYTES: Final = 2 << 30
_MOST_FILES: Final = 64

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_SECCOMP_MODE_FILTER: Final = 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _ANY_OF, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF: ld, jeq, jset, ret

# For each machine: the number of its calling convention (linux/audit.h), and the numbers of the
# system calls (asm/unistd.h) that make sockets, programs, processes and files, or that reach into
# other processes.
_REFUSED: Final[dict[str, tuple[int, tuple[int, ...]]]] = {
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 49, 50, 53, 288),  # socket connect accept bind listen socketpair accept4
            *(57, 58, 59, 322),  # fork vfork execve execveat
            *(62, 101, 310, 311),  # kill ptrace process_vm_readv process_vm_writev
            *(129, 200, 297, 424),  # rt_sigqueueinfo tkill rt_tgsigqueueinfo pidfd_send_signal
            *(76, 82, 83, 84, 85, 86, 87, 88, 90, 92),  # truncate rename mkdir rmdir creat link ...
            *(133, 155, 161, 165, 166, 175, 246, 248, 250),  # mknod pivot_root chroot mount keyctl
            *(258, 259, 263, 264, 265, 266, 268, 316),  # mkdirat mknodat unlinkat renameat ...
            *(298, 321, 323, 425, 438, 440),  # perf_event_open bpf userfaultfd io_uring pidfd_getfd
            *(91, 93, 94, 132, 235, 260, 261, 268, 280),  # fchmod fchown utime utimes utimensat ...
            *(188, 189, 190, 197, 198, 199),  # setxattr removexattr ...
            *(141, 142, 144, 160, 203, 251, 314),  # setpriority sched_set... setrlimit ioprio_set
            *(272, 308, 29, 64, 68, 240),  # unshare setns shmget semget msgget mq_open
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 199, 200, 201, 202, 203, 242),  # socket socketpair bind listen accept connect
            *(221, 281),  # execve execveat
            *(129, 117, 270, 271),  # kill ptrace process_vm_readv process_vm_writev
            *(138, 130, 240, 424),  # rt_sigqueueinfo tkill rt_tgsigqueueinfo pidfd_send_signal
            *(33, 34, 35, 36, 37, 38, 45, 276),  # mknodat mkdirat unlinkat symlinkat linkat ...
            *(39, 40, 41, 51, 52, 53, 54, 104, 217, 219),  # umount mount pivot_root chroot chmod
            *(241, 280, 282, 425, 438, 440),  # perf_event_open bpf userfaultfd io_uring pidfd_getfd
            *(55, 88, 5, 6, 7, 14, 15, 16),  # fchown utimensat setxattr removexattr ...
            *(140, 118, 119, 164, 122, 30, 274),  # setpriority sched_set... setrlimit ioprio_set
            *(97, 268, 194, 190, 186, 180),  # unshare setns shmget semget msgget mq_open
        ),
    ),
}
# `open` and `openat` are refused with flags that write (O_WRONLY, O_RDWR, O_CREAT, O_TRUNC). For
# each machine: the number of each call, and which of the call's arguments has the flags.
_OPENS: Final[dict[str, dict[int, int]]] = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# The number of `clone` on each machine. With the flag CLONE_THREAD it makes a thread, which is
# allowed; without the flag, it makes a process, which nobody would end.
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_THREAD: Final = 0x10000
# The numbers of `prctl`, `fcntl` and `prlimit64` on each machine, and what is refused: to outlive
# the parent; to have signals sent to other processes (F_SETOWN, F_SETSIG, F_SETOWN_EX); to set
# limits, of other processes too. To ask for limits is allowed, because libraries ask.
_PRCTL: Final = {"x86_64": 157, "aarch64": 167}
_FCNTL: Final = {"x86_64": 72, "aarch64": 25}
_PRLIMIT: Final = {"x86_64": 302, "aarch64": 261}
_SIGNALS: Final = (8, 10, 15)
# The number of `tgkill` on each machine. A decoder may send signals only to threads of its own
# process, because C's `abort` sends such a signal.
_TGKILL: Final = {"x86_64": 234, "aarch64": 131}
# The filter cannot see the arguments of these newer calls, so it refuses them. Libraries then use
# the older calls.
_NEWER: Final = (435, 437)  # clone3 openat2
# Landlock (https://docs.kernel.org/userspace-api/landlock.html). Its numbers are the same on all
# machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILE: Final = 1 << 2
_READ: Final = _READ_FILE | 1 << 3
_ALL_OF_FILES: Final = (1 << 13) - 1
_ALL_OF_TCP: Final = 3
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 3
# What libraries read beside their own folders: the machine's processors and memory, time zones.
_READABLE: Final = (
    *("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom"),
    *("/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
)
# The head and the sets of capset(2): version 3, this process, nothing.
_CAPABILITIES: Final = struct.pack("=Ii", 0x20080522, 0)
_NO_CAPABILITIES: Final = bytes(24)
# From this number on, x86_64 has its calls a second time, for programs of the x32 convention.
_X32: Final = 0x40000000


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def bound(most_file_bytes: int) -> None:
    """Limit this process until it ends. `most_file_bytes`: how much memory it may hand over at
    once, which counts as a file.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with suppress(OSError):  # so that the kernel kills decoders first if memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    held_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    memory_bytes = held_bytes + MOST_MEMORY_BYTES
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, most_file_bytes),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # without it, the next two need a capability
    _confine_files(libc)  # opens folders that root may read by its capabilities alone
    libc.capset(_CAPABILITIES, _NO_CAPABILITIES)
    _filter_calls(libc)


def missing() -> list[str]:
    """What this kernel, or the profile of a container, cannot keep decoders from."""
    libc = ctypes.CDLL(None, use_errno=True)
    lacks = []
    # Without a filter, a kernel that knows filters says EFAULT, and any other EINVAL.
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    if ctypes.get_errno() != errno.EFAULT or platform.machine() not in _REFUSED:
        lacks.append("sockets, processes and writing files (no seccomp)")
    if _landlock_version(libc) < 1:
        lacks.append("reading files of this user and of other processes (no Landlock)")
    return lacks


def _landlock_version(libc: ctypes.CDLL) -> int:
    return int(libc.syscall(_CREATE_RULESET, None, 0, 1))


def _confine_files(libc: ctypes.CDLL) -> None:
    """Refuse all files but those of Python and of the libraries. This also hides the memory and the
    environment of other processes.
    """
    version = _landlock_version(libc)
    if version < 1:
        return
    # Older kernels know fewer fields: connections since version 4, signals since version 6.
    fields = (_ALL_OF_FILES, _ALL_OF_TCP, _SIGNALS_AND_ABSTRACT_SOCKETS)
    known = 1 + (version >= 4) + (version >= 6)
    attributes = struct.pack(f"={known}Q", *fields[:known])
    rules = _done(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for path in (*sys.path[1:], sys.prefix, sys.base_prefix, *_READABLE):
        # `python -m` puts the current folder in the first place of `sys.path`: it is no library.
        with suppress(OSError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            may = _READ if Path(path).is_dir() else _READ_FILE
            libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", may, place), 0)
            os.close(place)
    _done(libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _done(result: int) -> int:
    """An unconfined decoder would be worse than none. So this raises `OSError` if the kernel that
    knows Landlock refused it.
    """
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused")
    return result


def _filter_calls(libc: ctypes.CDLL) -> None:
    machine = platform.machine()
    if machine not in _REFUSED:
        return
    code = _program(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_, 0, 0)


def _program(machine: str) -> bytes:
    """The filter as bytes. A refused call returns EPERM; it returns ENOSYS if libraries then try an
    older call.
    """
    convention, refused = _REFUSED[machine]
    no_way, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    lines = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, convention),
        (_RETURN, 0, 0, no_way),
        (_LOAD, 0, 0, 0),
        (_ANY_OF, 0, 1, _X32),
        (_RETURN, 0, 0, no_way),
    ]
    for answer, calls in ((no_way, refused), (unknown, _NEWER)):
        for call in calls:
            lines += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, answer)]
    for call, argument in _OPENS[machine].items():
        lines += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, 16 + 8 * argument)]
        lines += [(_ANY_OF, 0, 1, _WRITES), (_RETURN, 0, 0, no_way), (_RETURN, 0, 0, _ALLOW)]
    for call, what, wanted in (
        (_CLONE[machine], _ANY_OF, _CLONE_THREAD),
        (_TGKILL[machine], _EQUAL, os.getpid()),
    ):
        lines += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, 16)]
        lines += [(what, 1, 0, wanted), (_RETURN, 0, 0, no_way), (_RETURN, 0, 0, _ALLOW)]
    for call, argument, unwanted in (
        (_PRCTL[machine], 0, (_PR_SET_PDEATHSIG,)),
        (_FCNTL[machine], 1, _SIGNALS),
    ):
        lines += [(_EQUAL, 0, 2 + 2 * len(unwanted), call), (_LOAD, 0, 0, 16 + 8 * argument)]
        for value in unwanted:
            lines += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, no_way)]
        lines += [(_RETURN, 0, 0, _ALLOW)]
    # The third argument of `prlimit64` is where the new limits are: an address of two words.
    lines += [(_EQUAL, 0, 6, _PRLIMIT[machine])]
    for word in (32, 36):
        lines += [(_LOAD, 0, 0, word), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, no_way)]
    lines += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
