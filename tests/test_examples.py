"""Every example runs as its page says, in a folder of its own, and imports only what is public."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.waiting import DEADLINE_S

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PUBLIC = {"penstock", "penstock.plugins", "penstock.testing"}
_FENCE = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
Serve = Callable[[str], str]


def cells() -> list[str]:
    notebook = json.loads((EXAMPLES / "answers.ipynb").read_text())
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def test_pages_and_examples_import_only_what_is_public() -> None:
    texts = {file: file.read_text() for file in EXAMPLES.rglob("*.py")}
    texts[EXAMPLES / "answers.ipynb"] = "\n".join(cells())
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        texts[page] = "\n".join(_FENCE.findall(page.read_text()))
    imported = re.compile(r"^ *(?:from|import) (penstock[\w.]*)", re.MULTILINE)
    assert not {
        (file.name, module)
        for file, text in texts.items()
        for module in imported.findall(text)
        if module not in PUBLIC
    }


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts an example's model server on a free port; its first line is its URL."""
    with ExitStack() as running:

        def start(name: str) -> str:
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, str(EXAMPLES / name / "server.py"), "0"],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=tmp_path,
                )
            )
            running.callback(process.kill)
            assert process.stdout is not None
            return process.stdout.readline().strip()

        yield start


def run(folder: Path, *command: str, **variables: str) -> str:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environ | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_frames_of_cameras_are_answered_in_order(tmp_path: Path, serve: Serve) -> None:
    lines = run(tmp_path, str(EXAMPLES / "cameras" / "cameras.py"), serve("cameras")).splitlines()
    brightness = [int(line.split()[-1]) for line in lines]
    assert brightness == [20 * cam + 2 * frame for cam in range(1, 5) for frame in range(10)]


def test_readings_of_sensors_become_a_table_of_answers(tmp_path: Path, serve: Serve) -> None:
    out = run(tmp_path, str(EXAMPLES / "sensors" / "sensors.py"), serve("sensors"))
    assert out.startswith("<10 results, 2 errors")
    rows = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert [row["sensor"] for row in rows] == ["north"] * 5 + ["south"] * 5
    assert [row["prediction.alarm"] for row in rows] == [
        *(False, False, None, True, True),
        *(False, True, None, True, True),
    ]


def test_the_cells_of_the_notebook_run_from_top_to_bottom(tmp_path: Path, serve: Serve) -> None:
    *before, last = cells()
    assert isinstance(ast.parse(last).body[-1], ast.Expr)
    # As a notebook does: the value of the last cell's last line is shown.
    program = "\n".join([*before, f"shown = {last}", "print(shown.to_dict())"])
    assert run(tmp_path, "-c", program, MODEL_URL=serve("sensors")).endswith(
        "{'north': 4.0, 'south': -14.8}\n"
    )


def test_the_package_with_a_format_is_the_page_s_and_keeps_every_promise(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    for name in ("quads.py", "pyproject.toml"):
        (text,) = re.findall(rf"^`{name}`\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        assert (EXAMPLES / "quads" / name).read_text() == text
    source, site = tmp_path / "quads", tmp_path / "site"
    shutil.copytree(EXAMPLES / "quads", source)
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    run(tmp_path, *install, "--target", str(site), str(source))
    run(source, "-m", "pytest", "-q", "-p", "no:cacheprovider", PYTHONPATH=str(site))
