"""What a terminal gets: completion by its shell, and progress with an estimate of the rest."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from penstock.commands import common_options
from penstock.library.progress_bar import predicting
from penstock.replay.pacing import Look

PENSTOCK = Path(sys.executable).with_name("penstock")


def said(**variables: str) -> str:
    """By the command, asked as a shell asks it."""
    done = subprocess.run(
        [PENSTOCK], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_of_a_shell_is_given_and_has_no_error(shell: str) -> None:
    script = said(_PENSTOCK_COMPLETE=f"{shell}_source")
    assert "_penstock_completion" in script
    assert f"{shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("penstock tr", {"trace"}),
        ("penstock dlq re", {"redrive", "resume"}),
        ("penstock run --dry", {"--dry-run"}),
        ("penstock config --in", {"--init"}),
    ],
)
def test_a_line_is_completed(shell: str, words: str, completed: set[str]) -> None:
    number = str(len(words.split()) - 1)
    answer = said(_PENSTOCK_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=number)
    found = re.split(r"[\n,]", answer)
    assert completed <= set(found)
    assert "demo" not in found


Bar = Callable[[], AbstractContextManager[Any]]


@pytest.mark.parametrize(
    ("bar", "move"),
    [
        (predicting, lambda it: (it.found(40), it.done(rows=80, objects=10))),
        (common_options.replaying, lambda it: it.compared(10, 40)),
        (
            common_options.replaying,
            lambda it: it.look(Look(4, 1)),
        ),
        (lambda: common_options.reading("topics"), lambda it: it(10, 40)),
    ],
)
def test_progress_tells_how_long_it_will_take(
    bar: Bar, move: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with bar() as it:
        move(it)
    assert re.search(r"-:--:--|\d:\d\d:\d\d.*\d:\d\d:\d\d", capsys.readouterr().err)


def test_progress_is_silent_where_nobody_looks(capsys: Any) -> None:
    with predicting() as bar:
        bar.found(3)
    assert capsys.readouterr() == ("", "")
