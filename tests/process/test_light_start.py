"""A command loads what it uses, not the clients and the stages of every other command."""

import subprocess
import sys
from pathlib import Path

import click

from penstock import commands
from penstock.commands.root import COMMANDS, cli

# 1 s of a core together. Every command would wait for them, `penstock --help` too.
HEAVY = {"aiohttp", "aiokafka", "botocore", "numpy", "obstore", "pyarrow", "s3fs"}


def test_help_waits_for_no_command() -> None:
    program = "import sys, penstock.commands.root; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    loaded = set(ran.stdout.decode().split())
    assert {"asyncio", "msgspec", "rich", "penstock.config"}.isdisjoint(loaded)
    ours = {name for name in loaded if name.startswith("penstock.commands.")}
    assert ours == {"penstock.commands.root", "penstock.commands.common_options"}


def test_each_command_is_the_function_of_its_name_in_the_file_of_its_name() -> None:
    files = {file.stem for file in Path(commands.__file__).parent.glob("*.py")}
    assert set(COMMANDS) == files - {"__init__", "root", "common_options"}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name
        assert command.help


def test_the_command_line_knows_all_commands_without_loading_a_client() -> None:
    program = (
        "import click, sys; from penstock.commands.root import COMMANDS, cli; "
        "[cli.get_command(click.Context(cli), name) for name in COMMANDS]; print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert HEAVY.isdisjoint(ran.stdout.decode().split())


def test_a_supervisor_does_not_load_the_stages_of_its_workers() -> None:
    program = "import sys, penstock.ops.supervisor; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert {"penstock.pipeline", "penstock.stages", "pyarrow"}.isdisjoint(
        ran.stdout.decode().split()
    )


def test_a_worker_without_tokens_loads_nothing_that_fetches_them() -> None:
    program = "import sys, penstock.worker.run_worker; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    loaded = set(ran.stdout.decode().split())
    assert "penstock.adapters.kafka.client" in loaded
    ours = "penstock.adapters.kafka.identity.providers"
    assert {ours, "azure", "google.auth", "gssapi", "jwt"}.isdisjoint(loaded)
