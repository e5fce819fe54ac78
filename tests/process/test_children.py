"""What the demo says of a child that did not live."""

import os
import signal
from pathlib import Path

import pytest

from penstock.errors import Fatal
from penstock.process.children import address, last_words, running
from penstock.tools.bench import child_processes


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "it left no message"),
        ("a warning\npenstock: no model\nset model.url\n", "no model\nset model.url"),
        ("Traceback\npenstock.errors.Fatal: no broker\n", "no broker"),
        ("Traceback\nOSError: no room\n", "OSError: no room"),
        ('{"level": "info", "message": "joins the group"}\n', "joins the group"),
    ],
)
def test_a_childs_last_words_are_its_message_to_people(
    tmp_path: Path, log: str, words: str
) -> None:
    file = tmp_path / "log"
    file.write_text(log)
    assert last_words(file) == words


async def test_a_child_that_says_nothing_did_not_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running("the judge", "penstock.no_such_module", log, environ=os.environ) as child:
        with pytest.raises(Fatal, match=r"the judge did not start: .*no_such_module"):
            await address(child, log)
        # In the block: a signal to a process that is just ending loses its exit code.
        assert await child.wait() == 1


async def test_a_task_that_ends_without_an_answer_is_named_with_its_exit_code() -> None:
    async with child_processes.child("penstock.no_such_module", stdin=b"{}") as child:
        with pytest.raises(Fatal, match="ended early, with exit code 1"):
            await child_processes.line(child, dict)


async def test_a_block_that_fails_stops_its_task() -> None:
    with pytest.raises(Fatal):
        async with child_processes.child("http.server", "0", "--bind", "127.0.0.1") as child:
            raise Fatal("the bench failed")
    assert child.code == -signal.SIGTERM
