"""Shares change in the file, and a worker that runs takes them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.commands.root import cli
from penstock.config import load
from penstock.settings.routes import routes_of
from penstock.tools.simulation.virtual_time import run
from penstock.worker.run_worker import take_routes
from tests.support.pipelines import World, csv, running, until

TEXT = """
[[models]]
name = "v2"
[[routes]]
model = "rows"
split = { v2 = %s }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    message = tmp_path / "penstock.toml"
    message.write_text(TEXT % 0)
    return message


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (TEXT % 100, "v2"),
        (TEXT % 101, "rows"),
        (TEXT.replace("v2", "v3") % 100, "rows"),
        ("[[", "rows"),
    ],
)
def test_a_share_is_changed_while_the_worker_runs_and_a_slip_changes_nothing(
    file: Path, text: str, model: str
) -> None:
    world = World().with_models(["v2"], *routes_of(load(file, {})).routes)
    file.write_text(text)

    async def work() -> None:
        async with running(world) as pipeline:
            world.announce("1.csv", csv(1), stream="s")
            await until(lambda: world.next_offset() == 1)
            take_routes(pipeline.wiring.intake, lambda: load(file, {}))
            world.announce("2.csv", csv(1), stream="s")
            await until(lambda: world.next_offset() == 2)

    run(work())
    assert [record["model"] for record in world.records()] == ["rows", model]


def test_the_command_says_who_answers(file: Path) -> None:
    file.write_text(TEXT % 100)
    done = CliRunner().invoke(cli, ["route", "s1", "s2", "--config", str(file)])
    assert done.output.splitlines() == ["s1\tv2", "s2\tv2"]
    done = CliRunner().invoke(cli, ["route", "--config", str(file)])
    assert done.output == "* to rows, 100 % to v2; else to rows\n"
