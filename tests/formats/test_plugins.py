"""A format of a user's package: built from the documentation, installed, found and read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import EXIT_USAGE, Fatal
from penstock.formats.format import Format
from penstock.packages import plugins

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
_FILE = re.compile(r"^`([\w.]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

READS = """
import sys, gzip, numpy as np
from tests.formats.support import decode, matrix, tar_of
from quads import MAGIC
from penstock.errors import Poison
rows = np.arange(12.0).reshape(3, 4)
body = MAGIC + rows.astype("<f8").tobytes()
for key, data in [("x.quads", body), ("x", body), ("x.quads.gz", gzip.compress(body)),
                  ("x.tar", tar_of({"a.quads": body, "b.txt": b"no"}))]:
    for cuts in ([], range(len(data))):
        assert matrix(decode(data, key, cuts=cuts)) == rows.tolist(), key
try:
    decode(body[:-1], "x.quads")
except Poison as error:
    assert error.code == "bad_format"
else:
    raise AssertionError("a file that breaks off")
"""


def package(folder: Path) -> Path:
    for name, text in _FILE.findall(PAGE.read_text()):
        (folder / name).write_text(text)
    return folder


def test_the_format_of_the_documentation_can_be_installed_and_read(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    command = [*install, str(site), "--no-build-isolation", str(package(source))]
    subprocess.run(command, check=True, capture_output=True)
    root = str(PAGE.parents[1])
    environment = {"PYTHONPATH": f"{site}:{root}", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        [sys.executable, "-c", READS], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("code", "says"), [("raise RuntimeError('no')", "RuntimeError"), ("THING = 3", "it is 3")]
)
def test_a_package_that_cannot_be_used_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    group = f"penstock.test.{says[:2].strip()}"
    (info / "METADATA").write_text("Name: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_{len(says)}:THING\n")
    (tmp_path / f"broken_{len(says)}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Fatal, match=f"broken.*{says}") as caught:
        plugins(group, Format)
    assert caught.value.exit_code == EXIT_USAGE
