"""Programs that judge the deployment's files; a test without its program is skipped."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RENDERED = Path(__file__).parent / "rendered"


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


@asynccontextmanager
async def running(folder: Path, *command: str) -> AsyncIterator[None]:
    """The program runs in this folder, and writes its `log` there."""
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stderr=log, stdout=log)
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


def rendered(name: str) -> list[dict[str, Any]]:
    """What helm made of the chart with the values of `name`, as it is committed."""
    return [one for one in yaml.safe_load_all((RENDERED / f"{name}.yaml").read_text()) if one]
