"""A command loads what it uses, not the clients and the stages of every other command."""

import subprocess
import sys

# 1 s of a core together. Every command would wait for them, `penstock --help` too.
HEAVY = {"aiohttp", "aiokafka", "botocore", "numpy", "obstore", "pyarrow", "s3fs"}


def test_the_command_line_knows_all_commands_without_loading_a_client() -> None:
    program = "import sys, penstock.commands.root; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert HEAVY.isdisjoint(ran.stdout.decode().split())


def test_a_supervisor_does_not_load_the_stages_of_its_workers() -> None:
    program = "import sys, penstock.ops.processes.supervisor; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert {"penstock.pipeline", "penstock.stages", "pyarrow"}.isdisjoint(
        ran.stdout.decode().split()
    )
