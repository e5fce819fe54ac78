"""What is published: a wheel, installed outside the checkout, with its own name on the index."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import EXIT_USAGE
from penstock.packages import DISTRIBUTION, command_from, missing_extra
from tests.support.waiting import DEADLINE_S

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `bin` of an environment that has the wheel, and its dependencies by borrowing ours."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "consumers", source / "consumers", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _run(
        "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", str(folder), str(source),
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    _run("-m", "venv", "--without-pip", str(environment))
    python = environment / "bin" / "python"
    _run("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel))
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield environment / "bin"
    shutil.rmtree(folder)


def _run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr


def _penstock(binaries: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    return subprocess.run(
        [binaries / "penstock", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        cwd=binaries,
        env=environ,
    )


def test_the_demo_works_from_an_installed_wheel(installed: Path) -> None:
    done = _penstock(installed, "demo", "--seconds", "1", "--streams", "4")
    assert done.returncode == 0, done.stderr
    assert "in order, none lost, none twice" in done.stdout
    where = subprocess.run(
        [installed / "python", "-c", "import penstock; print(penstock.__file__)"],
        capture_output=True, text=True, cwd=installed, check=True,
    )  # fmt: skip
    assert str(installed.parent) in where.stdout, "it was the checkout that ran"


# Names that people give to folders of their own, next to a notebook.
THEIRS = ("consumers", "schemas", "tests", "messages", "adapters")


def test_folders_of_somebody_elses_do_not_stand_in_the_way(installed: Path, tmp_path: Path) -> None:
    for name in THEIRS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is mine')\n")
    (tmp_path / "rows.csv").write_text("1,2\n")
    ours = "penstock.worker.run_worker, penstock.plugins, penstock.testing"
    every = f"import {ours}; from penstock import predict_sync"
    for command in (["-c", every], ["-m", "penstock", "schema", "reference"]):
        done = subprocess.run(
            [installed / "python", *command],
            capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "schemas" / "reference.v1.schema.json").read_text()


def test_the_wheel_has_one_name_to_import(installed: Path) -> None:
    (record,) = installed.parent.glob("lib/python*/site-packages/penstock_stream-*/RECORD")
    folders = {line.partition("/")[0] for line in record.read_text().splitlines()}
    assert {name for name in folders if not name.endswith(".dist-info")} <= {"penstock", ".."}


def test_the_version_is_that_of_the_distribution(installed: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert _penstock(installed, "--version").stdout == f"penstock, version {project['version']}\n"


def test_a_missing_extra_is_told_with_what_installs_it_from_where_this_came() -> None:
    """`pip install penstock[demo]` would install somebody else's project."""
    here, prefix = Path("/home/me/repo"), Path("/home/me/repo/.venv")
    checkout = '{"dir_info": {"editable": true}, "url": "file:///home/me/repo"}'
    git = '{"vcs_info": {"vcs": "git", "commit_id": "c0ffee"}, "url": "https://host/p.git"}'
    wheel = '{"archive_info": {}, "url": "file:///w/penstock.whl"}'
    for origin, folder, command in (
        (None, here, "pip install 'penstock-stream[demo]'"),
        (checkout, here, ".venv/bin/pip install -e '.[demo]'"),
        (checkout, Path("/"), f"{prefix}/bin/pip install -e '{here}[demo]'"),
        (git, here, "pip install 'penstock-stream[demo] @ git+https://host/p.git@c0ffee'"),
        (wheel, here, "pip install 'penstock-stream[demo] @ file:///w/penstock.whl'"),
    ):
        assert command_from(origin, "demo", folder, prefix) == command


def test_extras_that_errors_name_exist(installed: Path) -> None:
    error = missing_extra("the embedded broker", "demo", ImportError("no", name="confluent_kafka"))
    assert error.exit_code == EXIT_USAGE
    assert "the embedded broker needs confluent_kafka (no): " in str(error)
    code = "\n".join(path.read_text() for path in (ROOT / "consumers/penstock").rglob("*.py"))
    named = set(re.findall(r'missing_extra\([^)]+?, "(\w+)"', code))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"demo", "media", "images", "grpc", "otel"} <= named
    assert named <= extras["optional-dependencies"].keys()
    done = subprocess.run(
        [
            installed / "python", "-c",
            "import penstock.packages as e; print(e.install_command('demo'))",
        ],
        capture_output=True, text=True, cwd="/", check=True,
    )  # fmt: skip
    assert done.stdout.startswith("pip install 'penstock-stream[demo] @ file://")
