"""The lists of system calls agree with the kernel's own headers."""

import re
import subprocess
from pathlib import Path

import pytest

from penstock.decoders import system_calls
from penstock.decoders.system_calls import _ALLOWED, _CHECKED, _REFUSED

# For each machine its header, and what it must be told first (linux/arch/arm64/include/uapi/asm).
HEADERS = {
    "x86_64": "#include <asm/unistd_64.h>",
    "aarch64": (
        "#define __BITS_PER_LONG 64\n#define __ARCH_WANT_RENAMEAT\n"
        "#define __ARCH_WANT_NEW_STAT\n#define __ARCH_WANT_SET_GET_RLIMIT\n"
        "#include <asm-generic/unistd.h>"
    ),
}


def in_header(machine: str) -> dict[str, int]:
    command = ["cc", "-E", "-dM", "-x", "c", "-"]
    made = subprocess.run(
        command, input=HEADERS[machine], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no kernel headers of {machine}")
    macros = dict(re.findall(r"#define (__NR\w+) (\S+)", made.stdout))
    found = {}
    for name, value in macros.items():
        while value in macros:
            value = macros[value]  # noqa: PLW2901
        if value.isdigit():
            found[name.removeprefix("__NR_")] = int(value)
    return found


@pytest.mark.skipif(not Path("/usr/bin/cc").exists(), reason="no C compiler")
@pytest.mark.parametrize("machine", HEADERS)
@pytest.mark.parametrize("calls", [_ALLOWED, _REFUSED, _CHECKED])
def test_numbers_are_those_of_the_kernel(calls: str, machine: str) -> None:
    known = in_header(machine)
    names = [call.split()[0] for call in calls.split(",")]
    assert system_calls._numbers(calls, machine) == [known.get(name) for name in names]


def test_no_call_is_in_two_lists() -> None:
    names = [call.split()[0] for call in ",".join((_ALLOWED, _REFUSED, _CHECKED)).split(",")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("machine", HEADERS)
def test_a_program_is_within_what_the_kernel_takes(machine: str) -> None:
    """BPF_MAXINSNS of linux/bpf_common.h, and jumps of one byte."""
    assert len(system_calls._program(machine, system_calls._KILL)) <= 4_096 * 8
