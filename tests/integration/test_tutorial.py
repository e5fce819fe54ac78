"""docs/models.md, "Your own model in ten minutes", is followed to the letter on the real stack."""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from realstack.model_servers import TorchServe
from tests.support.services import Services
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.stack

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
TITLE = "## Your own model in ten minutes"
# What comes after it is a server of one's own; the stack's is there already.
END = "### A server of your own"


def blocks() -> Iterator[tuple[str, str, str]]:
    """(text before, language, content) of each block of the tutorial."""
    text = PAGE.read_text()
    tutorial = text[text.index(TITLE) : text.index(END)]
    pieces = re.split(r"^```(\w+)\n(.*?)^```\n", tutorial, flags=re.MULTILINE | re.DOTALL)
    yield from zip(pieces[::3], pieces[1::3], pieces[2::3], strict=False)


def predictions(file: Path) -> list[object]:
    return [json.loads(line)["prediction"] for line in file.read_text().splitlines()]


@pytest.fixture
def environ(services: Services) -> dict[str, str]:
    """As after `eval "$(scripts/stack env)"`, with the tools on the path."""
    if not services.management_socket:
        pytest.skip("the services' TorchServe lets no model be registered")
    TorchServe().build()  # mends what an earlier version left
    tools = f"{TorchServe().environment / 'bin'}:{Path(sys.executable).parent}"
    return {
        **os.environ,
        "PENSTOCK_MODEL__URL": services.model_url,
        "PENSTOCK_STACK_TORCHSERVE_MANAGEMENT": services.management_socket,
        "PATH": f"{tools}:{os.environ['PATH']}",
    }


def test_the_tutorial_works(environ: dict[str, str], tmp_path: Path) -> None:
    assert shutil.which("torch-model-archiver", path=environ["PATH"])
    script, expected = ["set -euo pipefail"], []
    for before, language, content in blocks():
        if language == "python":
            (tmp_path / re.findall(r"Save this as `(\w+\.py)`", before)[-1]).write_text(content)
        elif language == "json":
            expected.append([json.loads(line) for line in content.splitlines()])
        else:
            script.append(content)
    removal = script.pop()
    assert "DELETE" in removal
    # Others may have left the models of the page in the same server.
    suffix = uuid.uuid4().hex[:8]
    script, removal = [_named(each, suffix) for each in script], _named(removal, suffix)
    try:
        # It was begun before, and stopped behind the first registration.
        begun = next(n for n, each in enumerate(script) if "POST" in each)
        done = _bash("\n".join([*script[: begun + 1], *script[1:]]), environ, tmp_path)
    finally:
        _bash(removal, environ, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = re.findall(r"--output (\S+)", "".join(script))
    assert [predictions(tmp_path / output) for output in outputs] == expected
    assert len(expected) == 2


def _named(script: str, suffix: str) -> str:
    """With models of this test's own."""
    place = r"(--model-name |store/|models/|PENSTOCK_MODEL__NAME=)(mean|words)\b"
    return re.sub(place, rf"\g<1>\g<2>{suffix}", script)


def _bash(script: str, environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environ, timeout=DEADLINE_S, check=False,
        capture_output=True, text=True,
    )  # fmt: skip


def test_the_scripts_of_the_stack_s_torchserve_run(environ: dict[str, str]) -> None:
    """They named a Python that was gone."""
    for tool in ("torch-model-archiver", "torchserve"):
        done = _bash(f"{tool} --help", environ, Path("/"))
        assert done.returncode == 0, done.stderr
