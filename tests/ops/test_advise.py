"""What `penstock advise` prints of a status."""

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from penstock.commands.root import cli
from penstock.config import Config
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ops.advise import advised, as_json, lines
from tests.support.status_documents import document


def test_lines_and_json_say_the_same() -> None:
    advice = advised(document(), Config())
    said = list(lines(advice))
    assert said[0].startswith("size ")
    assert any(line.startswith("carries   the model: up to") for line in said)
    told = orjson.loads(as_json(advice))
    assert [one["said"] for one in told["advice"]] == [one.said for one in advice.advice]
    assert told["unknown"] == advice.unknown
    assert {"kind", "said", "now", "better", "sure"} == told["advice"][0].keys()


def test_of_several_processes_the_busiest_is_told_and_named() -> None:
    idle = document(streams=2) | {"process": 0}
    advice = advised({"processes": [idle, document() | {"process": 1}]}, Config())
    assert any("of 2 processes, this is told of the busiest (1)" in one for one in advice.unknown)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"processes": [{"error": "away"}]}, {"calls": {"times": {"calls": 1, "rows": 2}}}],
)
def test_what_is_no_status_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Fatal, match="penstock top --json") as caught:
        advised(wrong, Config())
    assert caught.value.exit_code == EXIT_USAGE


def test_a_file_of_a_status_is_read_and_one_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(orjson.dumps(document()))
    said = CliRunner().invoke(cli, ["advise", "--status", str(path)])
    assert (said.exit_code, said.output.splitlines()) == (
        0,
        [*lines(advised(document(), Config()))],
    )
    as_one = CliRunner().invoke(cli, ["advise", "--status", str(path), "--json"])
    assert orjson.loads(as_one.output)["v"] == 1
    path.write_bytes(b"no JSON")
    failed = CliRunner().invoke(cli, ["advise", "--status", str(path)])
    assert "--status" in str(failed.exception)
