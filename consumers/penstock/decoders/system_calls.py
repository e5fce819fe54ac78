"""The system calls that a decoder may make; any other call ends it.

Rule: what Python and the libraries need is allowed; where a call could also do harm, only with
harmless arguments. What a library may try, and can do without (to write a cache, to ask a name
service), is refused by an error. All else no library has a reason for: the kernel stops the decoder
in the call and tells the zygote, which ends it. Calls newer than the lists do not exist for a
decoder, so the C library uses the older ones. A thread is made when the zygote allows it, so that a
decoder has few.

The numbers are those of Linux: of x86_64 in `asm/unistd_64.h`, of aarch64 in
`asm-generic/unistd.h`. The lists were made by recording what the libraries call for the objects of
the tests, with the calls that other Pythons and C libraries (musl) make in their place.
"""

import ctypes
import errno
import fcntl
import os
import platform
import re
import select
import signal
import struct
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

# Names, each with its number on x86_64 and on aarch64; "-": the machine has no such call.
_ALLOWED: Final = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, preadv2 327 286, pwritev2 328 287, lseek 8 62, close 3 57, dup 32 23, dup2 33 -,
dup3 292 24, pipe 22 -, pipe2 293 59,

recvfrom 45 207, recvmsg 47 212, sendto 44 206, getsockname 51 204,
getpeername 52 205, getsockopt 55 209, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72,
eventfd2 290 19,

stat 4 -, lstat 6 -, fstat 5 80, newfstatat 262 79, statx 332 291, statfs 137 43,
fstatfs 138 44, access 21 -, faccessat 269 48, faccessat2 439 439, readlink 89 -,
readlinkat 267 78, getdents 78 -, getdents64 217 61, getcwd 79 17, fadvise64 221 223,
readahead 187 213,

munmap 11 215, mremap 25 216, mprotect 10 226, brk 12 214,
mincore 27 232, msync 26 227, membarrier 324 283,

futex 202 98, set_robust_list 273 99, get_robust_list 274 100, set_tid_address 218 96,
rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121,
sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
getpriority 140 141, getcpu 309 168, arch_prctl 158 -, exit 60 93, exit_group 231 94,
wait4 61 260, waitid 247 95, restart_syscall 219 128,

rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, pause 34 -,

clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, nanosleep 35 101,
gettimeofday 96 169, time 201 -, times 100 153,

getpid 39 172, gettid 186 178, getppid 110 173, getpgrp 111 -, getpgid 121 155, getsid 124 156,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148,
getresgid 120 150, getgroups 115 158, getrlimit 97 163, getrusage 98 165, capget 125 90,
uname 63 160, sysinfo 99 179, getrandom 318 278
"""
_REFUSED: Final = """
creat 85 -, truncate 76 45, fallocate 285 47, rename 82 -, renameat 264 38, renameat2 316 276,
mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, link 86 -, linkat 265 37,
symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33, chmod 90 -, fchmod 91 52,
fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -,
utimes 235 -, utimensat 280 88, futimesat 261 -, flock 73 32, fsync 74 82, fdatasync 75 83,
umask 95 166, chdir 80 49, fchdir 81 50, sendfile 40 71, copy_file_range 326 285, splice 275 76,
getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
flistxattr 196 13, ftruncate 77 46, memfd_create 319 279,

socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202,
accept4 288 242, setsockopt 54 208, shutdown 48 210, epoll_create 213 -, epoll_create1 291 20,

fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, tkill 200 130,

setrlimit 160 164, setpriority 141 140, sched_setparam 142 118, sched_setscheduler 144 119,
sched_setaffinity 203 122, sched_setattr 314 274, sched_getattr 315 275, ioprio_set 251 30,
ioprio_get 252 31, get_mempolicy 239 236, set_mempolicy 238 237, mbind 237 235, mlock 149 228,
mlock2 325 284, munlock 150 229, mlockall 151 230, munlockall 152 231, capset 126 91,
alarm 37 -, setitimer 38 103, getitimer 36 102, timer_create 222 107, timerfd_create 283 85
"""
# The calls whose arguments are looked at, in the order of `_checks`.
_CHECKED: Final = """
open 2 -, openat 257 56, clone 56 220, mmap 9 222, kill 62 129, tgkill 234 131, prctl 157 167,
fcntl 72 25, ioctl 16 29, prlimit64 302 261, close_range 436 436, sendmsg 46 211,
madvise 28 233
"""
# From this number on, calls are younger than Linux 5.1, and numbered alike on all machines.
_NEWER: Final = 424
# For each machine its place in the lists, the number of its calling convention (linux/audit.h), and
# the number of `seccomp`.
_MACHINES: Final = {"x86_64": (1, 0xC000003E, 317), "aarch64": (2, 0xC00000B7, 277)}
# From this number on, x86_64 has its calls a second time, for programs of the x32 convention.
_X32: Final = 0x40000000

_LOAD, _EQUAL, _ANY_OF, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06  # bpf_common.h
_ALLOW, _ERRNO, _NOTIFY, _KILL = 0x7FFF0000, 0x00050000, 0x7FC00000, 0x80000000  # linux/seccomp.h
_PR_SET_SECCOMP, _MODE_FILTER, _SET_FILTER, _NEW_LISTENER = 22, 2, 1, 8
# The requests to take a notice and to answer it (SECCOMP_IOCTL_NOTIF_RECV and _SEND). A notice
# begins with its id and the thread, and has the call's number behind 16 bytes. This answer lets the
# call go on; it is known since Linux 5.5.
_TAKE_NOTICE, _NOTICE_BYTES, _NOTICE = 0xC0502100, 80, struct.Struct("=QI4xi")
_ANSWER_NOTICE, _ANSWER, _GO_ON = 0xC0182101, struct.Struct("=QqiI"), 1
_GO_ON_SINCE: Final = (5, 5)

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# CLONE_THREAD makes a thread; without it, a process is made. All flags with which glibc and musl
# make threads (CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, ...):
_CLONE_THREAD, _OF_THREADS = 0x10000, 0x7D0F00
# A thread with descriptors of its own would have as many as `RLIMIT_NOFILE` allows the process,
# and what they hold (as pipes) is in no map, and is counted for the user. So is what epoll watches,
# thousands of times by 64 descriptors: it is refused.
_CLONE_FILES, _CLOSE_RANGE_UNSHARE = 0x400, 2
# Descriptors on their way to another process count for the user, not for who sent them: one decoder
# that sends some in each turn keeps all others from sending theirs. So a decoder may send from this
# one only. It is above its limit of files, and once it is closed, it cannot have it again.
MOST_FILES: Final = 64
HANDING_OVER: Final = MOST_FILES
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000
# MADV_REMOVE, _COLD, _PAGEOUT and _COLLAPSE: who reads shared memory waits while another does this
# to it.
_ADVICES: Final = (9, 20, 21, 25)
# PR_SET_NAME, PR_GET_NAME and PR_SET_VMA, which gives memory a name
_PRCTLS: Final = (15, 16, 0x53564D41)
_FCNTLS: Final = (
    *(fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL),
    fcntl.F_SETFL,
)
_IOCTLS: Final = (0x5421, 0x541B, 0x5451, 0x5450)  # FIONBIO, FIONREAD, FIOCLEX, FIONCLEX

# The libraries are told to make no threads; those of users' packages may make some.
MOST_THREADS: Final = 16
# So much less urgent, a thread has a fifteenth of the processor (sched_prio_to_weight in Linux).
_BEHIND: Final = 12

_ITSELF: Final = 0x7FFFFFF1  # above the largest number of a process, 1 << 22
_OWN: Final = struct.Struct("=I")

_Line = tuple[int, int, int, int]


def is_known(libc: ctypes.CDLL) -> bool:
    """True if this kernel filters system calls, and the calls of this machine are known."""
    # Without a filter, a kernel that knows filters says EFAULT, and any other EINVAL.
    libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT and platform.machine() in _MACHINES


def filter_calls(libc: ctypes.CDLL) -> int | None:
    """Filter the calls of this process until it ends. Returns the descriptor that tells of a call
    that is not allowed; None: the kernel itself ends the process, and nobody is told which call it
    was (before Linux 5.0, or if a container's manager has such a descriptor).
    """
    if not is_known(libc):
        return None
    number = _MACHINES[platform.machine()][2]
    for otherwise, flags in ((_NOTIFY, _NEW_LISTENER), (_KILL, 0)):
        own = _OWN.pack(os.getpid())
        code = _program(platform.machine(), otherwise).replace(_OWN.pack(_ITSELF), own)
        buffer = ctypes.create_string_buffer(code, len(code))
        filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        notices = libc.syscall(number, _SET_FILTER, flags, filter_)
        if notices >= 0:
            return notices if flags else None
    raise OSError(ctypes.get_errno(), "seccomp refused")


class SystemCall(NamedTuple):
    """A call that the kernel holds until it is answered, or the decoder has ended."""

    notice: int
    thread: int
    number: int


def call_told(notices: int) -> SystemCall | None:
    """The call that the descriptor tells of. None: the decoder has ended, or its call was broken
    off.
    """
    waiting = select.poll()
    waiting.register(notices, select.POLLIN)
    if not any(event & select.POLLIN for _, event in waiting.poll(0)):
        return None  # older kernels would wait
    notice = bytearray(_NOTICE_BYTES)
    try:
        fcntl.ioctl(notices, _TAKE_NOTICE, notice)
    except FileNotFoundError:
        return None
    return SystemCall(*_NOTICE.unpack_from(notice))


def may_go_on(call: SystemCall, decoder: int) -> bool:
    """True if the decoder asks for a thread, and has few."""
    if not _makes_thread(call.number):
        return False
    return sum(1 for _ in Path(f"/proc/{decoder}/task").iterdir()) < MOST_THREADS


def go_on(call: SystemCall, notices: int) -> None:
    """From now on the threads of the decoder come behind others: together they count as one."""
    os.setpriority(os.PRIO_PROCESS, call.thread, os.nice(0) + _BEHIND)
    fcntl.ioctl(notices, _ANSWER_NOTICE, _ANSWER.pack(call.notice, 0, 0, _GO_ON))


def _makes_thread(number: int) -> bool:
    return number == _numbers("clone 56 220", platform.machine())[0]


def prepare() -> None:
    """Make the filter, which takes a millisecond, for all processes that are forked from here."""
    if platform.machine() in _MACHINES:
        _program(platform.machine(), _NOTIFY)


def how_ended(code: int, call: int | None) -> str | None:
    """Says that a decoder was ended for a call; None: it was not."""
    if call is None and code != -signal.SIGSYS:
        return None
    if call is not None and _makes_thread(call):
        return f"asked for more than {MOST_THREADS} threads"
    which = "a system call" if call is None else f"the system call {call} of {platform.machine()}"
    return f"asked for {which}, which no decoder may make"


def _numbers(calls: str, machine: str) -> list[int | None]:
    """The numbers of the calls of a list; None: the machine has no such call."""
    numbers = [call.split()[_MACHINES[machine][0]] for call in calls.split(",")]
    return [None if number == "-" else int(number) for number in numbers]


@cache
def _program(machine: str, otherwise: int) -> bytes:
    """The filter for the kernel. `otherwise`: what becomes of calls that are in no list. `_ITSELF`
    stands for the number of the process.
    """
    no_right, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    lines: list[_Line] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _MACHINES[machine][1]),
        (_RETURN, 0, 0, otherwise),
        (_LOAD, 0, 0, 0),
        (_ANY_OF, 0, 1, _X32),
        (_RETURN, 0, 0, otherwise),
    ]
    answers = [(number, [(_RETURN, 0, 0, _ALLOW)]) for number in _numbers(_ALLOWED, machine)]
    thread = otherwise if otherwise == _NOTIFY and _kernel() >= _GO_ON_SINCE else _ALLOW
    answers += zip(_numbers(_CHECKED, machine), _checks(thread), strict=True)
    answers += [(number, [(_RETURN, 0, 0, no_right)]) for number in _numbers(_REFUSED, machine)]
    for number, answer in answers:
        if number is not None:
            lines += [(_EQUAL, 0, len(answer), number), *answer]
    lines += [(_AT_LEAST, 0, 1, _NEWER), (_RETURN, 0, 0, unknown), (_RETURN, 0, 0, otherwise)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _kernel() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2]))


def _checks(thread: int) -> list[list[_Line]]:
    """What becomes of each call of `_CHECKED`. `thread`: of a call that makes a thread."""
    allowed, refused = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)

    def with_any(argument: int, *values: int, error: int = errno.EPERM) -> list[_Line]:
        lines: list[_Line] = [_argument(argument)]
        for value in values:
            lines += [(_EQUAL, 0, 1, value), allowed]
        return [*lines, (_RETURN, 0, 0, _ERRNO | error)]

    def without(argument: int, bits: int) -> list[_Line]:
        return [_argument(argument), (_ANY_OF, 0, 1, bits), refused, allowed]

    return [
        without(1, _WRITES),
        without(2, _WRITES),
        [
            *(_argument(0), (_ANY_OF, 1, 0, _CLONE_THREAD), refused),
            *((_ANY_OF, 1, 0, _CLONE_FILES), refused),
            *((_ANY_OF, 0, 1, 0xFFFFFFFF ^ _OF_THREADS), refused),
            (_RETURN, 0, 0, thread),
        ],
        # Memory that is shared, and of no file, is held though it is in no map of the decoder that
        # the worker could weigh. Nor are pages that the system has set aside as huge ones.
        [
            *(_argument(3), (_ANY_OF, 2, 0, _MAP_HUGETLB)),
            *((_ANY_OF, 0, 2, _MAP_ANONYMOUS), (_ANY_OF, 0, 1, _MAP_SHARED), refused, allowed),
        ],
        with_any(0, _ITSELF),  # C's `abort` sends a signal to its own process
        with_any(0, _ITSELF),
        with_any(0, *_PRCTLS),
        with_any(1, *_FCNTLS),
        with_any(1, *_IOCTLS, error=errno.ENOTTY),  # as a file that is no terminal answers
        # The third argument of `prlimit64` is where new limits are, an address of two words.
        [
            *(_argument(2), (_EQUAL, 1, 0, 0), refused),
            *((_LOAD, 0, 0, 36), (_EQUAL, 1, 0, 0), refused, allowed),
        ],
        without(2, _CLOSE_RANGE_UNSHARE),
        with_any(0, HANDING_OVER),
        [
            _argument(2),
            *(line for advice in _ADVICES for line in ((_EQUAL, 0, 1, advice), refused)),
            allowed,
        ],
    ]


def _argument(number: int) -> _Line:
    """Load the lower half of an argument, which is all that the kernel uses of a number."""
    return _LOAD, 0, 0, 16 + 8 * number
