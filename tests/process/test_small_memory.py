"""Processes of ours do without pandas, those with users' plug-ins have it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")

ARRAY = """
import sys
import pyarrow as pa
from penstock.process.memory import without_pandas
without_pandas()
pa.array([1, None]).to_numpy(zero_copy_only=False)
print("pandas" in sys.modules)
"""
PLUGIN = "[penstock.requests]\nmine = mine:REQUEST\n"


@pytest.mark.parametrize("has_plugin", [False, True])
def test_pyarrow_takes_pandas_for_absent_unless_a_plug_in_may_use_both(
    has_plugin: bool, tmp_path: Path
) -> None:
    if has_plugin:
        package = tmp_path / "mine-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(PLUGIN)
    program = f"import sys; sys.path.append({str(tmp_path)!r})\n{ARRAY}"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert ran.stdout.split() == [str(has_plugin).encode()]
