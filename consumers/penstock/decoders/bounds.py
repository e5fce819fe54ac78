"""What the kernel refuses a decoder, even if an object takes over the libraries that read it.

Rule: a decoder gets no more memory than its limit, writes no files, and starts no connections,
processes or other programs. If a kernel cannot refuse one of these things, it still refuses the
others. Owner: the decoder, before its first task.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
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
        ),
    ),
}
# `open` and `openat` are refused with flags that write (O_WRONLY, O_RDWR, O_CREAT, O_TRUNC). For
# each machine: the number of each call, and which of the call's arguments has the flags.
_OPENS: Final[dict[str, dict[int, int]]] = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# The number of `clone` on each machine. With the flag CLONE_VM it makes a thread, which is allowed;
# without the flag, it makes a process.
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_VM: Final = 0x100
# The number of `tgkill` on each machine. A decoder may send signals only to threads of its own
# process, because C's `abort` sends such a signal.
_TGKILL: Final = {"x86_64": 234, "aarch64": 131}
# The filter cannot see the arguments of these newer calls, so it refuses them. Libraries then use
# the older calls.
_NEWER: Final = (435, 437)  # clone3 openat2
# From this number on, x86_64 has its calls a second time, for programs of the x32 convention.
_X32: Final = 0x40000000


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def bound(most_file_bytes: int) -> bool:
    """Limit this process until it ends. `most_file_bytes`: how much memory it may hand over at
    once, which counts as a file. Returns False if the kernel has no filter for system calls.
    """
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
        resource.setrlimit(what, (most, most))
    return _filter_calls()


def _filter_calls() -> bool:
    machine = platform.machine()
    if machine not in _REFUSED:
        return False
    code = _program(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return not libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_, 0, 0)


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
        (_CLONE[machine], _ANY_OF, _CLONE_VM),
        (_TGKILL[machine], _EQUAL, os.getpid()),
    ):
        lines += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, 16)]
        lines += [(what, 1, 0, wanted), (_RETURN, 0, 0, no_way), (_RETURN, 0, 0, _ALLOW)]
    lines += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
