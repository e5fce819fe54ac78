"""What the demo says of a child that did not live."""

from pathlib import Path

import pytest

from consumers.process.children import last_words


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "it left no message"),
        ("a warning\npenstock: no model\nset model.url\n", "no model\nset model.url"),
        ("Traceback\nconsumers.errors.Fatal: no broker\n", "no broker"),
        ("Traceback\nOSError: no room\n", "OSError: no room"),
    ],
)
def test_a_childs_last_words_are_its_message_to_people(
    tmp_path: Path, log: str, words: str
) -> None:
    file = tmp_path / "log"
    file.write_text(log)
    assert last_words(file) == words
