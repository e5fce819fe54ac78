"""`penstock schema` prints what the repository's schemas/ has."""

import pytest
from click.testing import CliRunner

from penstock.commands.schema import schema
from penstock.messages.json_schemas import FOLDER, SUFFIX, documents


@pytest.mark.parametrize("file", documents())
def test_it_prints_the_file_of_that_name(file: str) -> None:
    for name in (file, file.removesuffix(SUFFIX)):
        done = CliRunner().invoke(schema, [name])
        assert done.exit_code == 0
        assert done.output == (FOLDER / file).read_text()


def test_without_a_name_it_lists_all() -> None:
    listed = CliRunner().invoke(schema, []).output.split()
    assert [name + SUFFIX for name in listed] == list(documents())


def test_an_unknown_name_is_answered_by_the_known_ones() -> None:
    done = CliRunner().invoke(schema, ["predictions"])
    assert done.exit_code == 1
    assert "prediction, block" in done.output
