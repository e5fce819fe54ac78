"""Finds or installs what the local services need on the machine, or names what is missing.

Rule: system packages are installed only if root runs this on Debian or a system derived from it.
Before anything is downloaded, one line names everything else that is missing, and the exit code is
3.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from realstack import layout
from realstack.service import Missing, StackError

JAVA_MINIMUM = 17  # Kafka 4's brokers need it
GO_MINIMUM = (1, 21)  # since then Go itself downloads the newer Go that a module needs


@dataclass(frozen=True)
class Need:
    """A program of the machine. `packages`: Debian's; empty if Debian's version is too old."""

    what: str
    present: bool
    packages: tuple[str, ...]


def ensure(*, kafka_is_built: bool, minio_is_built: bool) -> None:
    """Install what building and running the services needs. Raises `Missing` with all that cannot
    be installed.
    """
    needs = [
        Need(
            f"Java {JAVA_MINIMUM} or newer", _java() >= JAVA_MINIMUM, ("openjdk-17-jre-headless",)
        ),
        Need("Maven (mvn)", kafka_is_built or shutil.which("mvn") is not None, ("maven",)),
        Need("Go 1.21 or newer", minio_is_built or go_version() >= GO_MINIMUM, ()),
        Need(
            "a Python with torch and venv",
            torch_python() != "",
            ("python3-torch", "python3-venv", "python3-pip"),
        ),
    ]
    missing = [need for need in needs if not need.present]
    if not missing:
        return
    packages = [package for need in missing for package in need.packages]
    installable = os.getuid() == 0 and shutil.which("apt-get") is not None
    if not installable or not all(need.packages for need in missing):
        hint = f" (on Debian: apt-get install {' '.join(packages)})" if packages else ""
        raise Missing("missing: " + ", ".join(need.what for need in missing) + hint)
    _apt_install(packages)
    torch_python.cache_clear()


def _apt_install(packages: list[str]) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    what = "installing " + " ".join(packages)
    run(["apt-get", "update"], what="refreshing the package lists", cwd=Path("/"))
    # Another installation may be under way, as a machine's own updates are after its start.
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    install = ["apt-get", *wait, "install", "-y", "--no-install-recommends", *packages]
    run(install, what=what, cwd=Path("/"), env=quiet)


def _version(command: list[str], pattern: str) -> tuple[int, ...]:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return (0,)
    match = re.search(pattern, answer.stdout + answer.stderr)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def _java() -> int:
    return _version(["java", "-version"], r'version "(\d+)')[0]


def go_version() -> tuple[int, ...]:
    return _version(["go", "version"], r"go(\d+)\.(\d+)")


def go_install(module: str, binary: Path, *, what: str, within_s: float | None = None) -> None:
    """Build `binary` unless it exists already. The file must have the name that Go gives the
    module's program.
    """

    def make(folder: Path) -> None:
        if go_version() < GO_MINIMUM:
            raise Missing(f"missing: Go 1.21 or newer, which builds {binary.name}")
        run(
            ["go", "install", module],
            what=f"building {binary.name} with Go ({what}, once)",
            cwd=folder,
            env={"GOBIN": str(folder)},
            within_s=within_s,
        )

    layout.build_once(binary.parent, make)


@functools.cache
def torch_python() -> str:
    """A system Python that has torch and can make environments; empty if there is none."""
    return _python_with("torch", "venv", "ensurepip")


def venv_python() -> str:
    """A Python that can make environments. The system's Python is tried first, because Triton runs
    on no other.
    """
    if python := _python_with("venv", "ensurepip"):
        return python
    raise Missing("missing: a Python with venv (on Debian: apt-get install python3-venv)")


def _python_with(*modules: str) -> str:
    check = (
        "import importlib.util as u, sys;"
        f"sys.exit(any(u.find_spec(name) is None for name in {modules}))"
    )
    for python in ("/usr/bin/python3", shutil.which("python3"), sys.executable):
        if python and shutil.which(python):
            answer = subprocess.run([python, "-c", check], capture_output=True, check=False)
            if answer.returncode == 0:
                return python
    return ""


def run(
    argv: list[str],
    *,
    what: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    within_s: float | None = None,
) -> None:
    """Run a slow step. A line on stderr announces the step. The step's output is shown only if the
    step fails. A step that takes longer than `within_s` is killed.
    """
    print(f"{what} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.run(
                argv,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=within_s,
            ).returncode
        except subprocess.TimeoutExpired:
            raise StackError(f"{what} takes longer than {within_s:.0f} s") from None
        if code != 0:
            output.seek(0)
            last = output.read().decode(errors="replace").splitlines()[-15:]
            raise StackError(f"{what} failed:\n" + "\n".join(last))
