"""axe-core, which judges whether people with a screen reader or a keyboard can use a page.

Rule: it is fetched once, by npm, into the cache; tests skip where it cannot be had. It runs in a
tab by the browser's own tools, so the page's policy stays as it is.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.chromium import Tab

VERSION = "4.10.2"
FETCH_S = 60


def axe() -> str:
    """Its script."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "penstock")
    file = cache / f"axe-core-{VERSION}.js"
    if not file.exists():
        if shutil.which("npm") is None:
            pytest.skip("no npm to fetch axe-core by")
        with TemporaryDirectory() as folder:
            command = ["npm", "pack", "--silent", f"axe-core@{VERSION}"]
            try:
                subprocess.run(command, cwd=folder, check=True, timeout=FETCH_S, text=True)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"axe-core cannot be fetched: {error}")
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                member = archive.extractfile("package/axe.min.js")
                assert member is not None
                text = member.read()
        cache.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    return file.read_text()


async def findings(tab: Tab, script: str) -> list[str]:
    """What is serious or critical, one text each."""
    await tab.run(f"{script}; 0")
    report: dict[str, list[dict[str, Any]]] = await tab.run("axe.run()")
    assert report["passes"]
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} "
        f"{node.get('failureSummary', '')[:300]}"
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
